"""Every station of one event, and which are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from eventplane.contract import Contract, Place, load_compiled
from eventplane.delivery import Outcome
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.ledger import LEDGER, TAP
from eventplane.replay import REPLAY
from eventplane.router import Router
from eventplane.tracing import context_of
from operations import stations
from operations.archive import Days, Record
from operations.letters import Letter, letter_of
from operations.names import Key, names_in
from operations.search import Followed, Item, in_tap
from operations.stations import Station


@dataclass(slots=True)
class Trace:
    """What is known of the event `key`: its `stations` in order of time, and what is `missing`, in words.

    Its spans are those of the trace `trace_id`, which is known where the tap has the event.
    """

    key: Key
    trace_id: str | None = None
    stations: list[Station] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def trace(key: Key, days: Days, letters: Iterable[Letter], contract: Contract) -> Trace:
    """The trace of `key` in the archive's `days` and among the `letters` of queues.

    `contract` says what was to be expected of an event on which no router decided.
    """
    taps = _once(days.records(TAP, in_tap(key)), "message_id", "index")
    events = [each for each in taps if each["event"] is not None and names_in(each["event"]) == key]
    items = [each for each in taps if each["event"] is None]
    reports = [(each, letter) for each in taps if each not in events for letter in _letters(each)]
    followed = Followed(
        key,
        frozenset(letter.events[0].key for _, letter in reports),
        frozenset(
            Item(each["client_id"], each["refusal"], each["accepted_at_ms"], each["index"]) for each in items
        ),
    )
    records = _once(
        days.records(LEDGER, followed.wanted),
        "message_id",
        "source",
        "id",
        "route",
        "decided_at_ms",
        "outcome",
    )
    own = [each for each in records if not followed.is_letter(each)]
    told = [each for each in records if followed.is_letter(each)]
    waiting = [each for each in letters if key in each.keys]
    found = [station for each in events[:1] if (station := stations.recorded(each))]
    found += [stations.accepted(each) for each in [*events, *items]]
    found += [stations.reported(tap, letter) for tap, letter in reports]
    # In the order of cause and effect, which sorting keeps where they have one time.
    found += [stations.decided(each, is_letter=False) for each in own]
    found += [stations.decided(each, is_letter=True) for each in told]
    found += [stations.waiting(each) for each in waiting]
    event = _event(events)
    trace_id = context_of(event).trace_id if event else None
    result = Trace(key, trace_id, sorted(found, key=lambda station: station.at_ms))
    if not found:
        result.missing = [_never_seen(days)]
    elif events or items or own:
        expected = _expected(events, own, days, contract)
        result.missing = list(
            _missing(
                [*events, *items],
                own,
                told=any(each["outcome"] == Outcome.DELIVERED for each in told),
                expected=expected,
                contract=contract,
            )
        )
    return result


def _once(records: Iterable[Record], *names: str) -> list[Record]:
    """Each record once: a batch that the archive writer was given twice stands in two objects."""
    return list({tuple(each[name] for name in names): each for each in records}.values())


def _letters(tap: Record) -> Iterator[Letter]:
    if tap["event"] is not None:
        event = parse_event(tap["event"])
        letter = letter_of(event, place="", id=event.id, since_ms=tap["accepted_at_ms"], body="")
        if letter is not None:
            yield letter


def _expected(events: list[Record], own: list[Record], days: Days, contract: Contract) -> frozenset[str]:
    """The routes that the event takes by the contract which decided on it; none if it never was an event."""
    event = _event(events)
    if event is None:
        return frozenset()
    if own:
        # A replay may be for somebody who came later, by a contract that nothing else is owed by.
        routed = [each for each in own if each["reason"] != REPLAY] or own
        version = max(routed, key=lambda each: each["decided_at_ms"])["contract_version"]
        compiled = None if version == contract.version else days.contract(version)
        contract = load_compiled(compiled) if compiled else contract
    return frozenset(each.name for each in Router(contract, Place.CLOUD).route(event))


def _event(events: list[Record]) -> Envelope | None:
    for each in events:
        try:
            return parse_event(each["event"])
        except EnvelopeError:
            continue
    return None


def _missing(
    taps: list[Record], own: list[Record], *, told: bool, expected: frozenset[str], contract: Contract
) -> Iterator[str]:
    uplink = contract.device.outbox.address
    if taps and not own:
        yield (
            "no router has decided: it is under way, or in the ingest queue or its dead-letter queue; see "
            "the log of the devices' router"
        )
        return
    if not taps and any(each["entered_by"] == uplink for each in own):
        yield (
            "a router has decided, and the tap has nothing: look at the tap's queues and the archive's "
            "quarantine/, or begin earlier with --from"
        )
    # A dead letter of one route says nothing of the others; one of no route, that the event was never routed.
    ends = {(each["outcome"], each["route"]) for each in own}
    if any(outcome == Outcome.DEAD_LETTERED for outcome, _ in ends) and not told:
        yield "no record that its dead letter was delivered: look for a route that takes dead letters"
    if not ends & {(Outcome.DEAD_LETTERED, None), (Outcome.UNROUTED, None)}:
        decided = {route for outcome, route in ends if outcome in stations.FINAL}
        for route in sorted(expected - decided):
            yield f"route {route} matches it, and no router says what became of it"


def _never_seen(days: Days) -> str:
    return (
        f"never reached the tap between {days.first} and {days.last} (UTC): the device has it, or never had "
        "it; see its spool and its discarded reports, or choose other days with --from and --to"
    )
