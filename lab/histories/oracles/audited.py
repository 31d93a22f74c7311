"""The audit of the archive says what became of each event, and proves all that the devices could state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Final

from eventplane.account import Fate, reader_of
from eventplane.attributes import Attributes
from eventplane.contract import Place
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.envelope import Sender
from eventplane.names import EPOCH, SEQUENCE, SUBSCRIBERS
from eventplane.reasons import REDRIVE
from glue_jobs.common.attestation import open_key
from glue_jobs.delivery_audit.audit import Audit, AuditRequest
from glue_jobs.delivery_audit.findings import ALLOWED, BROKEN, INCOMPLETE, Hop, Kind, weight_of
from glue_jobs.delivery_audit.findings import Finding as Found
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.rules import LATENESS_S, Watermark, Window
from glue_jobs.delivery_audit.small import audit_small
from glue_jobs.delivery_audit.verdict import OPEN, PROVEN
from lab.histories.cloud import BUCKET, CloudModel
from lab.histories.oracles.delivered import discarded, letters, letters_about, put, taken
from lab.histories.oracles.finding import OracleFinding
from tests.fakes.s3 import MemoryObjects

if TYPE_CHECKING:
    from lab.histories.history import History

Statement = tuple[str, ...]
"""What became of an event, or how many events came somewhere, in words that sort."""

DAY: Final = Window(date(2026, 1, 1))
"""The day on which every history begins and ends."""

_NOT_PUT: Final = (Kind.LOST, Kind.DEAD_LETTERED, Kind.EXPIRED, Kind.DROPPED)
_GIVEN_UP: Final = "given up"
_FATES: Final = (Fate.IN_INBOX, Fate.REFUSED, Fate.LOST)
"""Words that are compared by number. What was given up has findings, and lies in the inbox as well."""

_FATE_OF: Final = {Kind.DEAD_LETTERED: Fate.REFUSED, Kind.LOST: Fate.LOST}


def request_of(cloud: CloudModel, as_of_ms: int) -> AuditRequest:
    """Return the request for an audit of the history's day, made at `as_of_ms` (Unix milliseconds)."""
    bodies = {name: each.body for name, each in cloud.s3.buckets[BUCKET].items()}
    output = MemoryObjects()
    return AuditRequest(
        MemoryObjects(bodies),
        output,
        output,
        DAY,
        Watermark(as_of_ms),
        open_key(None),
        now_ms=lambda: as_of_ms,
        progress=lambda _: None,
    )


def ended_ms(history: History) -> int:
    """Return when no record of a history can come any more, Unix milliseconds."""
    return history.ended_ms + 1_000 * LATENESS_S


def judged(history: History) -> Iterator[OracleFinding]:
    """Compare what the audit says with what the simulator knows."""
    audit = audit_small(request_of(history.cloud, ended_ms(history)))
    # Of what was sent back the last word counts, which the archive alone has.
    again = {
        (_GIVEN_UP, each["source"], each["id"], each["destination"])
        for each in history.ledger
        if each["reason"] == REDRIVE
    }
    yield from _at_home(audit, history)
    yield from _by_programs(audit, history)
    found, known = {*_found(audit)} - again, {*_known(history), *_by_readers(history)} - again
    if _cut_off(history):  # no manifest states what such a device sent last
        found, known = ({each for each in both if each[0] != "unattested"} for both in (found, known))
    for kind, which in (("the audit is wrong", found - known), ("the audit misses", known - found)):
        for first, *others in sorted(which):
            yield OracleFinding(f"{kind}: {first}", " ".join(others))


def _found(audit: Audit) -> Iterator[Statement]:
    document = report(audit, audit.chain, [], [])
    yield "arrived", str(document["totals"]["events_archived"])
    yield "unattested", str(document["totals"]["unattested"])
    yield "verdict", PROVEN if document["verdict"] == OPEN else document["verdict"]
    for each in document["accounts"]:
        # Those of subscribed endpoints are told apart by their routes, and have an oracle of their own.
        if reader_of(str(each["inbox"])) == SUBSCRIBERS:
            continue
        there = (Fate.IN_INBOX, Fate.GIVEN_UP, Fate.HANDLED)
        counts = {**each, Fate.IN_INBOX: sum(each[fate] for fate in there)}
        yield from (("inbox", str(each["inbox"]), fate, str(counts[fate])) for fate in _FATES if counts[fate])
    for each in audit.findings:
        yield from _of_finding(each)


def _at_home(audit: Audit, history: History) -> Iterator[OracleFinding]:
    """Compare how many events a home's services took by the audit with how many they got.

    A state that a newer one replaced has ended as well.
    """
    states = (versions for home in history.homes.values() for versions in home.states.values())
    replaced = sum(len(versions) - 1 for versions in states)
    for inbox in audit.history.homes:
        taken = sum(audit.fleet.homes[inbox, name] for name in ("receipt", "broker"))
        name = inbox.partition(".")[0]
        got = sum(len(home.services[name].handled) for home in history.homes.values())
        if taken > got + replaced:
            yield OracleFinding(
                "the audit says that homes took what they never got", f"{inbox}: {taken} of {got}"
            )


def _by_programs(audit: Audit, history: History) -> Iterator[OracleFinding]:
    """Compare how many events readers took by the audit with how many they handled and leave receipts of."""
    handled = {each["inbox"]: each[Fate.HANDLED] for each in audit.figures.accounts}
    for inbox in audit.history.readers:
        if (taken_by_audit := handled.get(inbox, 0)) != (known := len(taken(history, inbox))):
            yield OracleFinding("the audit knows other receipts", f"{inbox}: {taken_by_audit} of {known}")


def _of_finding(found: Found) -> Iterator[Statement]:
    if found.kind == Kind.DEAD_LETTERED and found.hop == Hop.INBOX_CONSUMER:
        yield _GIVEN_UP, str(found.source), str(found.id), str(found.destination)
    elif found.kind in _NOT_PUT and found.route is not None:
        yield found.kind, found.hop, str(found.source), str(found.id), str(found.destination)
    elif found.kind in _NOT_PUT and found.sequence is not None:
        kind = found.kind if found.kind == Kind.LOST else _GIVEN_UP
        yield kind, found.hop, str(found.epoch), str(found.sequence)
    elif found.kind == Kind.DUPLICATE and found.hop == Hop.DEVICE_CLOUD:
        yield found.kind, str(found.source), str(found.id)
    elif weight_of(found.kind) != ALLOWED:
        yield found.kind, found.hop, str(found.device), str(found.detail)


def _known(history: History) -> Iterator[Statement]:
    copies: Counter[tuple[str, str]] = Counter()
    arrived: dict[tuple[str, str], Attributes] = {}
    for frame, events in history.frames:
        for event in events:
            copies[event.source, event.id] += 1
            arrived[event.source, event.id] = {**event.attributes, "senderdevice": frame.client_id}
    yield "arrived", str(len(arrived))
    # What a device without a disk sends has no number, and no manifest states it, also where it comes again.
    unattested = len(
        {
            (each.source, each.id)
            for _, events in history.frames
            for each in events
            if EPOCH not in each.attributes
        }
    )
    yield "unattested", str(unattested)
    yield from ((str(Kind.DUPLICATE), *key) for key, count in copies.items() if count > 1)
    were_put = put(history)
    lost = [*_not_sent(history, arrived), *_not_put(history, arrived, were_put)]
    yield from lost
    for epoch, number in discarded(history, at_home=True):
        yield _GIVEN_UP, str(Hop.DEVICE_INBOX), epoch, str(number)
    fates = Counter(_in_inboxes(history, arrived, were_put))
    # Of one event on two routes to an inbox there is one account.
    fates.update((each[-1], _FATE_OF[Kind(each[0])]) for each in {*lost} if each[1] == Hop.ROUTER)
    yield from (("inbox", address, str(fate), str(count)) for (address, fate), count in fates.items())
    is_broken = any(kind == Kind.LOST for kind, *_ in lost)
    is_unknown = unattested or _cut_off(history)
    yield "verdict", BROKEN if is_broken else INCOMPLETE if is_unknown else PROVEN


def _by_readers(history: History) -> Iterator[Statement]:
    """What readers in the cloud gave up, of which the ledger has the dead letter.

    The ledger does not say which endpoint gave up: those that are subscribed have an oracle of their own.
    """
    received = {each["id"].partition(".")[0] for each in history.ledger if each["type"] == DEAD_LETTER_TYPE}
    for key, letter in letters_about(history):
        owner, _, box = letter["channel"].partition(".")
        is_on_device = history.contract.participants[owner].kind.is_on_device
        is_readers = box == "inbox" and owner != SUBSCRIBERS and not is_on_device
        if is_readers and letter_id(str(Sender(**letter["sender"])), *key) in received:
            yield _GIVEN_UP, *key, letter["channel"]


def _in_inboxes(
    history: History,
    arrived: Mapping[tuple[str, str], Attributes],
    put: Mapping[str, Collection[tuple[str, str]]],
) -> dict[tuple[str, Fate], int]:
    """How many events the ledger has of each inbox.

    A router that ended half-way left no record, and the next one need not know a subscription any more.
    """
    decided = {(each["destination"], each["source"], each["id"]) for each in history.ledger}
    counts = {}
    for address, keys in put.items():
        routes = history.contract.routes_at(Place.CLOUD)
        filters = [each.filter for each in routes if each.destination == address]
        known = [
            key
            for key in keys
            if (address, *key) in decided
            or key not in arrived
            or any(each.matches(arrived[key]) for each in filters)
        ]
        if known and reader_of(address) != SUBSCRIBERS:
            counts[address, Fate.IN_INBOX] = len(known)
    return counts


def _cut_off(history: History) -> set[str]:
    """Return the devices that have no good key in the end, and something to send."""
    connected = history.keys.at_end if history.keys else history.homes
    return {thing for thing, left in history.spooled.items() if left and thing not in connected}


def _not_sent(history: History, arrived: Mapping[tuple[str, str], Attributes]) -> Iterator[Statement]:
    """What devices that can send stored for the cloud, and IoT Core never took."""
    given_up = discarded(history)
    sent = {(str(each.get(EPOCH)), int(str(each.get(SEQUENCE, -1)))) for each in arrived.values()}
    for thing in history.homes.keys() - _cut_off(history):
        for each in history.homes[thing].for_cloud.keys() - sent:
            kind = _GIVEN_UP if each in given_up else str(Kind.LOST)
            yield kind, str(Hop.DEVICE_CLOUD), each[0], str(each[1])


def _not_put(
    history: History,
    arrived: Mapping[tuple[str, str], Attributes],
    were_put: Mapping[str, Collection[tuple[str, str]]],
) -> Iterator[Statement]:
    """What IoT Core took, and no router put into an inbox to which a route leads."""
    dead = letters(history)
    for key, attributes in arrived.items():
        for route in history.contract.routes_at(Place.CLOUD):
            if key not in were_put[route.destination] and route.filter.matches(attributes):
                kind = Kind.DEAD_LETTERED if key in dead else Kind.LOST
                yield str(kind), str(Hop.ROUTER), *key, route.destination
