"""Every station of one event, and what became of it; of each sender that has sent one of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from eventplane.account import (
    ENDED_AS_DECLARED,
    ENDED_OTHERWISE,
    OPEN,
    Account,
    Fate,
    accounts,
    inbox_of,
    reader_of,
)
from eventplane.contract import Contract, ParticipantKind, Place
from eventplane.downlink.device import Acknowledgement
from eventplane.envelope import Envelope, EventKey
from eventplane.errors import EnvelopeError
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reader_receipts import is_asked, recorded_percent
from eventplane.reasons import REDRIVE, REPLAY, Outcome
from eventplane.router import Router
from eventplane.trace_context import context_of
from operations import stations
from operations.archive import Days, Record
from operations.command import DONE, END_UNKNOWN, FAILED
from operations.home_steps import Heard, archived_contract, at_home, homes_of
from operations.letters import Letter, letter_of
from operations.names import Claim, answers_in, event_in_tap, names_in, sender_in_tap
from operations.search import Item, Sought, in_tap
from operations.stations import Station

_NO_ROUTER: Final = (
    "no router has decided: it is in flight, or in the ingest queue or its dead-letter queue; see the log of "
    "the devices' router"
)
_UNDECIDED: Final = "a route leads there, and no router recorded an outcome; its message is redelivered"


@dataclass(slots=True)
class Trace:
    """The known history of the event `claim` of `sender`: its `stations` in order of time, its `accounts` by
    inbox, and which records are `missing`, in words; `unknown_ends` says of inboxes with the event, or of
    any, why it is not known what their reader did. While it `is_open`, more is about to be known.

    The sender is '' where it is not known, and of an event without any record. Of that, `possible` is what
    may have become of it, by its device's reports. Its spans are those of the trace `trace_id`, which is
    known where the tap has the `event`. It was decided, or had to be, by the contract `contract_version`.
    """

    claim: Claim
    sender: str
    contract_version: str
    is_open: bool
    event: Envelope | None = None
    stations: list[Station] = field(default_factory=list)
    accounts: tuple[Account, ...] = ()
    missing: list[str] = field(default_factory=list)
    unknown_ends: list[str] = field(default_factory=list)
    possible: list[Account] = field(default_factory=list)

    @property
    def trace_id(self) -> str | None:
        return context_of(self.event).trace_id if self.event else None

    @property
    def status(self) -> int:
        """The exit status: whether each end, in the home and in the cloud, is known and as was declared."""
        fates = {each.fate for each in self.accounts}
        if fates & ENDED_OTHERWISE:
            return FAILED
        is_known = fates <= ENDED_AS_DECLARED and not (self.missing or self.unknown_ends)
        return DONE if is_known else END_UNKNOWN


def traces(claim: Claim, days: Days, letters: Iterable[Letter], contract: Contract) -> list[Trace]:
    """The trace of each event with these names in the archive's `days` and among the `letters` of queues, by
    sender; at least one.

    `contract` says what was to be expected of an event on which no router decided.
    """
    taps = _once(days.records(TAP, in_tap(claim), claim), "message_id", "index")
    seen = _Seen(claim)
    for each in taps:
        seen.take(each)
    services = frozenset(each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    senders = seen.senders | services
    while True:
        followed = Sought(claim, senders, seen.letters, frozenset(seen.items.values()))
        records = _once(
            days.records(LEDGER, followed.wanted, followed.about),
            "message_id",
            "source",
            "id",
            "route",
            "decided_at_ms",
            "outcome",
        )
        found = {sender for each in records if (sender := followed.sender_of(each)) is not None}
        if found <= senders:
            break
        # The ids of their dead letters are known only now.
        senders |= found
    ends = _once(days.records(HANDOVERS, followed.handed_over, claim), "message_id", "route", "decided_at_ms")
    waiting = [each for each in letters if claim in each.claims]
    homes = homes_of({each["client_id"] for _, each in seen.events}, days, contract)
    about = seen.senders | found | {str(each.sender or "") for each in waiting}
    return [
        _trace(sender, seen, followed, [*records, *ends], waiting, days, contract, homes)
        for sender in sorted(about) or [""]
    ]


@dataclass
class _Seen:
    """What the tap has of the events `claim`: the events, what was `malformed`, `reports`, which are dead
    letters that devices wrote about them, and `answers` of devices; each with the text of the sender."""

    claim: Claim
    events: list[tuple[str, Record]] = field(default_factory=list)
    malformed: list[tuple[str, Record]] = field(default_factory=list)
    answers: list[tuple[str, Record, Acknowledgement]] = field(default_factory=list)
    reports: list[tuple[str, Record, Letter]] = field(default_factory=list)
    letters: dict[EventKey, str] = field(default_factory=dict)
    items: dict[tuple[str, int], Item] = field(default_factory=dict)

    @property
    def senders(self) -> frozenset[str]:
        found = [sender for sender, _ in [*self.events, *self.malformed]]
        return frozenset([*found, *(sender for sender, _, _ in self.reports)])

    def take(self, tap: Record) -> None:
        sender = str(sender_in_tap(tap))
        if tap["event"] is None:
            self.malformed.append((sender, tap))
            place = tap["message_id"], tap["index"]
            self.items[place] = Item(
                sender, tap["client_id"], tap["refusal"], tap["accepted_at_ms"], tap["index"]
            )
        elif names_in(tap["event"]) == self.claim:
            self.events.append((sender, tap))
        elif answers := answers_in(tap["event"]):
            own = (each for each in answers if (each.source, each.id) == self.claim)
            self.answers += ((each.sender, tap, each) for each in own)
        else:
            self._take_report(tap)

    def _take_report(self, tap: Record) -> None:
        try:
            event = event_in_tap(tap)
        except EnvelopeError:
            return
        letter = letter_of(event, place="", id=event.id, since_ms=tap["accepted_at_ms"], body="")
        if letter is not None:
            sender = str(letter.sender or "")
            self.reports.append((sender, tap, letter))
            self.letters[event.key] = sender


def _trace(
    sender: str,
    seen: _Seen,
    followed: Sought,
    records: Iterable[Record],
    letters: Iterable[Letter],
    days: Days,
    contract: Contract,
    homes: Mapping[str, Heard],
) -> Trace:
    # Of copies with several numbers the first one was in the home first.
    taps = sorted((each for who, each in seen.events if who == sender), key=itemgetter("accepted_at_ms"))
    event = _event(taps)
    items = [each for who, each in seen.malformed if who == sender]
    own = [each for each in records if followed.sender_of(each) == sender]
    decided = [each for each in own if "entered_by" in each]
    told = [each for each in records if "entered_by" in each and followed.sender_by_letter(each) == sender]
    found = [station for each in taps[:1] if (station := stations.recorded(each))]
    found += [stations.accepted(each) for each in [*taps, *items]]
    found += [stations.reported(tap, letter, contract) for who, tap, letter in seen.reports if who == sender]
    # In the order of cause and effect, which sorting keeps where they have one time.
    found += [stations.decided(each) if "entered_by" in each else stations.handed_over(each) for each in own]
    deciding = deciding_contract(decided, days.contract, contract)
    if event and not decided:
        deciding = _followed_contract(event, taps[0]["accepted_at_ms"], days) or contract
    due = due_inboxes(event, deciding) if event else set()
    # Whoever knows the event can write a letter of that id: it counts for an inbox that the event came to.
    reached = due | {each.account.inbox for each in found if each.account}
    found += [stations.told(each, reached, contract) for each in told]
    down = contract.device.inbox.address
    if down in {each.account.inbox for each in found if each.account}:
        found += [stations.answered(tap, each) for who, tap, each in seen.answers if who == sender]
    found += [stations.waiting(each, contract) for each in letters if str(each.sender or "") == sender]
    why = _UNDECIDED if decided else _NO_ROUTER if found else _never_seen(days, seen.claim[0])
    facts = [each.account for each in found if each.account]
    device = taps[0]["client_id"] if event else ""
    # Apart: what rang in the home says nothing of the cloud.
    home = list(at_home(event, device, homes[device], contract, days.contract)) if event else []
    found += [station for each in home if (station := stations.at_home(*each, device))]
    missing = list(_missing([*taps, *items], decided, told, contract))
    cloud = accounts(due, facts, why)
    ends = (*cloud, *(account for account, _ in home))
    unknown_ends = [_unknown_end(each, seen.claim, deciding) for each in ends if each.fate is Fate.IN_INBOX]
    unknown_ends += (
        f"other inboxes: the archive has no contract {version}, which decided"
        for version in sorted({each["contract_version"] for each in decided} - {contract.version})
        if archived_contract(version, days.contract) is None
    )
    return Trace(
        seen.claim,
        sender,
        deciding.version,
        # What happened at home the next manifest states, within an hour.
        bool(missing) or any(each.fate in OPEN for each in cloud),
        event,
        sorted(found, key=lambda station: station.at_ms),
        ends,
        missing,
        unknown_ends,
    )


def _unknown_end(account: Account, claim: Claim, contract: Contract) -> str:
    """Return why it is not known what the reader of an inbox did with the event that is in it."""
    address = account.inbox.partition(" ")[0]
    reader = reader_of(address)
    participant = contract.participants.get(reader)
    why = f"{reader} leaves no receipts: see `receipts` in the contract"
    if address == contract.device.inbox.address:
        why = "no record says for which devices it is; their answers are steps: see `eventplane desired`"
    elif participant is None or participant.kind is not ParticipantKind.CLOUD_SERVICE:
        why = f"the home's broker has taken it, and {why}"
    elif percent := recorded_percent(participant.inbox):
        why = f"no receipt of {reader} yet: it has not settled it, or is no client of ours"
        if not is_asked(*claim, percent):
            why = f"receipts are asked of {percent} % of its events, and not of this one"
    return f"{account.inbox}: {why}"


def _once(records: Iterable[Record], *names: str) -> list[Record]:
    """Each record once: a batch that the archive writer was given twice stands in two objects."""
    return list({tuple(each[name] for name in names): each for each in records}.values())


def deciding_contract(
    own: Sequence[Record], compiled: Callable[[str], bytes | None], contract: Contract
) -> Contract:
    """The contract that decided the `own` records of an event, if `compiled` returns it, else `contract`."""
    if own:
        # What was sent again may be for somebody who came later, by a contract that nothing else is owed by.
        routed = [each for each in own if each["reason"] not in (REPLAY, REDRIVE)] or own
        version = max(routed, key=lambda each: each["decided_at_ms"])["contract_version"]
        if version != contract.version:
            contract = archived_contract(version, compiled) or contract
    return contract


def _followed_contract(event: Envelope, accepted_ms: int, days: Days) -> Contract | None:
    """Return the contract that a device followed as it was rolled out; None if it followed none then."""
    version = event.attributes.get(FOLLOWED_CONTRACT)
    is_rolled_out = version is not None and version in days.candidates(accepted_ms)
    return archived_contract(str(version), days.contract) if is_rolled_out else None


def due_inboxes(event: Envelope, contract: Contract) -> set[str]:
    """The inboxes that are due an event in the cloud."""
    return {inbox_of(each.destination, each.name) for each in Router(contract, Place.CLOUD).route(event)}


def _event(events: list[Record]) -> Envelope | None:
    for each in events:
        try:
            return event_in_tap(each)
        except EnvelopeError:
            continue
    return None


def _missing(taps: list[Record], own: list[Record], told: list[Record], contract: Contract) -> Iterator[str]:
    if not taps and any(each["entered_by"] == contract.device.outbox.address for each in own):
        yield (
            "a router has decided, and the tap has nothing: look at the tap's queues and the archive's "
            "quarantine/, or begin earlier with --from"
        )
    is_told = any(each["outcome"] == Outcome.DELIVERED for each in told)
    if not is_told and any(each["outcome"] == Outcome.DEAD_LETTERED for each in own):
        yield "no record that its dead letter was delivered: look for a route that takes dead letters"


def _never_seen(days: Days, source: str) -> str:
    if left := days.left(TAP):
        return f"not found, and it may have reached the tap: {left}"
    remedy = "see its device" if source else "name its source"
    return (
        f"it never reached the tap between {days.first} and {days.last} (UTC): it waits on its device, ended "
        f"there, or was never sent; {remedy}, or choose other days with --from and --to"
    )
