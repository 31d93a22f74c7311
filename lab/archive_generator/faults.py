"""Faults of one event, by hop: a fault changes the rows of a right case and says what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from edge import reports
from edge.numbering import stamp
from edge.spool import Manifest
from eventplane.contract import ParticipantKind
from eventplane.dead_letter import ROUTER_SOURCE
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.guarantee import BY_EVENT
from eventplane.ingest import OPERATOR
from eventplane.ledger import Basis, HandoverRecord, LedgerRecord
from eventplane.names import EPOCH, SENDER_SERVICE, SEQUENCE
from eventplane.reader_receipts import SETTLED_BEFORE
from eventplane.reasons import Outcome, Reason
from eventplane.sending import stamp_sender
from eventplane.values import timestamp_ms, timestamp_of_ms
from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.device import HOUR_MS
from lab.archive_generator.records import (
    READER_LETTERS,
    WEBHOOK_LETTERS,
    Case,
    Passage,
    decided,
    handed_over,
    letters,
    right_case,
)
from lab.archive_generator.truth import COVERAGE, QUARANTINED, Truth

_Plant = TypeVar("_Plant", bound="Callable[[Case], list[Truth]]")

LATE_MS: Final = 30 * 3_600_000
"""How late what is late comes, milliseconds: longer than any window's grace should be."""

FAST_MS: Final = 15 * 60_000
"""How far a router's wrong clock is ahead, milliseconds: too little to make its contract a stale one."""

EARLY_MS: Final = 10 * 60_000
"""How long before its acceptance an event is decided where records contradict each other, milliseconds."""

AGAIN_MS: Final = 2_000
"""How long after the first a second copy comes, milliseconds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`fits` says whether it can happen to a case; `plant` makes it happen and returns what it did.

    What is nothing to find has no truth.
    """

    name: str
    fits: Callable[[Case], bool]
    plant: Callable[[Case], list[Truth]]


FAULTS: Final[list[Fault]] = []
"""All of them, in the order in which they are planted."""


def _fault(*fits: Callable[[Case], object], name: str = "") -> Callable[[_Plant], _Plant]:
    """Add a function to `FAULTS`, by its name or another one, that can happen where all of `fits` hold."""

    def add(plant: _Plant) -> _Plant:
        FAULTS.append(Fault(name or plant.__name__, lambda case: all(fit(case) for fit in fits), plant))
        return plant

    return add


def _is_acknowledged(case: Case) -> bool:
    return case.passage.states_acknowledged


def _is_routed(case: Case) -> bool:
    return bool(case.routes)


def _is_kept_in_a_queue(case: Case) -> bool:
    # An event that was never in the inbox is not handed over: that would be missing as well.
    return bool(case.routes) and not case.handovers


def _is_posted(case: Case) -> bool:
    return bool(case.handovers) and case.handovers[-1].status is not None


def _is_read(case: Case) -> bool:
    return bool(case.handovers) and case.handovers[-1].status is None


def _is_ordered(case: Case) -> bool:
    return any(map(case.routing.is_ordered, case.routes))


def _keeps_no_order(case: Case) -> bool:
    # What comes late or again where order is promised would be out of order as well.
    return bool(case.routes) and not _is_ordered(case)


def _ends_in_its_hour(case: Case) -> bool:
    # A record that lies in the next hour may lie in one without records.
    return case.passage.accepted_at_ms % HOUR_MS < HOUR_MS - 2 * FAST_MS


def _begins_in_its_hour(case: Case) -> bool:
    return case.passage.accepted_at_ms % HOUR_MS > 2 * EARLY_MS


def fact(case: Case, kind: str, hop: Hop | None, **more: Any) -> Truth:
    """Return what happened to the event of `case`, with all that the archive knows of it."""
    event = case.event
    known = {
        "device": case.passage.client_id,
        "epoch": event.attributes[EPOCH],
        "sequence": int(str(event.attributes[SEQUENCE])),
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "contract_version": case.routing.contract.version,
        "at_ms": case.passage.accepted_at_ms,
    }
    return Truth(kind=kind, hop=hop, **{**known, **more})


def _of_row(case: Case, kind: str, hop: Hop | None, row: Any) -> Truth:
    return fact(case, kind, hop, route=row.route, destination=row.destination)


def _handed(case: Case, kind: str, inbox: str) -> Truth:
    (route,) = (each for each in case.routes if each.destination == inbox)
    return fact(case, kind, Hop.INBOX_CONSUMER, route=route.name, destination=inbox)


def _lose_last(case: Case, outcome: Outcome, reason: str) -> list[Truth]:
    """The router says that its last delivery ended so, which nothing bears out."""
    row = case.ledger[-1]
    case.ledger[-1] = replace(row, outcome=outcome, reason=reason)
    _take_back(case, row)
    return [_of_row(case, Kind.LOST, Hop.ROUTER, row)]


def _take_back(case: Case, row: LedgerRecord) -> None:
    """Remove the hand-overs of events that were never put into the inbox."""
    case.handovers = [each for each in case.handovers if each.channel != row.destination]


@_fault(lambda case: not _is_acknowledged(case))
def lost_on_the_way_up(case: Case) -> list[Truth]:
    """Before the tap: behind IoT Core where the device states that this has acknowledged it."""
    case.tap, case.ledger, case.handovers = [], [], []
    unknown = dict.fromkeys(("source", "id", "type", "contract_version", "at_ms"))
    hop = Hop.IOT_RULE if case.passage.states_acknowledged else Hop.DEVICE_CLOUD
    return [fact(case, Kind.LOST, hop, **unknown)]


_fault(_is_acknowledged, name="lost_behind_iot_core")(lost_on_the_way_up)


@_fault(_is_routed)
def lost_on_a_route(case: Case) -> list[Truth]:
    row = case.ledger.pop()
    _take_back(case, row)
    return [_of_row(case, Kind.LOST, Hop.ROUTER, row)]


@_fault()
def lost_without_a_word(case: Case) -> list[Truth]:
    rows, case.ledger, case.handovers = case.ledger, [], []
    return [_of_row(case, Kind.LOST, Hop.ROUTER, row) for row in rows]


_fault(_is_routed, name="lost_as_expired")(partial(_lose_last, outcome=Outcome.EXPIRED, reason=BY_EVENT))


@_fault(_is_routed)
def lost_as_expired_in_another_form(case: Case) -> list[Truth]:
    """The router expires an event whose expiry has a form that few readers take."""
    mortal = _changed(case.event, expirytime="2026-12-31t23:59:60.5+00:00")
    _become(case, right_case(mortal, case.passage, case.routing))
    return _lose_last(case, Outcome.EXPIRED, BY_EVENT)


FAULTS.extend(
    Fault(name, _is_routed, partial(_lose_last, outcome=outcome, reason=reason))
    for name, outcome, reason in (
        ("lost_as_dead_lettered", Outcome.DEAD_LETTERED, "not_taken"),
        ("lost_for_no_interest", Outcome.NO_INTEREST, Reason.NO_INTEREST),
    )
)


@_fault(_is_posted)
def lost_behind_the_inbox(case: Case) -> list[Truth]:
    row = case.handovers.pop()
    return [_handed(case, Kind.LOST, row.channel)]


# The queue deletes it after its time, and its reader left no receipt.
_fault(_is_read, name="taken_by_nobody")(lost_behind_the_inbox)


def _elsewhere(case: Case) -> Any:
    """A route that the event does not take, to an inbox where nothing else is known of it."""
    return next(
        each
        for each in case.routing.others(case.routes)
        if not case.routing.is_recorded(each) and not case.routing.is_ordered(each)
    )


@_fault(_is_routed)
def misrouted_as_well(case: Case) -> list[Truth]:
    row = decided(case, _elsewhere(case))
    case.ledger.append(row)
    return [_of_row(case, Kind.MISROUTED, Hop.ROUTER, row)]


@_fault(_is_routed)
def misrouted_instead(case: Case) -> list[Truth]:
    owed = case.ledger[-1]
    _take_back(case, owed)
    row = case.ledger[-1] = decided(case, _elsewhere(case))
    return [_of_row(case, Kind.MISROUTED, Hop.ROUTER, row), _of_row(case, Kind.LOST, Hop.ROUTER, owed)]


@_fault(lambda case: not case.routes)
def delivered_without_a_route(case: Case) -> list[Truth]:
    row = case.ledger[0] = decided(case, _elsewhere(case))
    return [_of_row(case, Kind.UNROUTED_DELIVERED, Hop.ROUTER, row)]


def _later(passage: Passage, by_ms: int) -> Passage:
    times = ("accepted_at_ms", "archived_at_ms", "decided_at_ms", "handed_over_at_ms")
    return replace(passage, **{name: getattr(passage, name) + by_ms for name in times})


def _brought(passage: Passage, word: str, client: str | None = None) -> Passage:
    """The same way in messages of its own, brought by `client` (None: the same one)."""
    return replace(
        passage,
        client_id=client or passage.client_id,
        tap_message=f"{passage.tap_message}-{word}",
        router_message=f"{passage.router_message}-{word}",
    )


def _add(case: Case, other: Case) -> None:
    """Add the rows of another event, or of another copy."""
    case.tap += other.tap
    case.ledger += other.ledger
    case.handovers += other.handovers


@_fault(_keeps_no_order)
def sent_again(case: Case) -> list[Truth]:
    """The device did not hear that it had arrived; the router, rightly, delivers both copies."""
    _add(case, right_case(case.event, _brought(_later(case.passage, AGAIN_MS), "again"), case.routing))
    return [fact(case, Kind.DUPLICATE, Hop.DEVICE_CLOUD)]


@_fault(_keeps_no_order)
def routed_again(case: Case) -> list[Truth]:
    row = case.ledger[-1]
    case.ledger.append(replace(row, decided_at_ms=row.decided_at_ms + AGAIN_MS, attempt=2))
    return [_of_row(case, Kind.DUPLICATE, Hop.ROUTER, row)]


@_fault(_is_posted)
def handed_over_again(case: Case, reason: str | None = None) -> list[Truth]:
    row = case.handovers[-1]
    case.handovers.append(replace(row, decided_at_ms=row.decided_at_ms + AGAIN_MS, attempt=2, reason=reason))
    return [_handed(case, Kind.DUPLICATE, row.channel)]


_fault(_is_read, name="handled_again")(handed_over_again)


@_fault(_is_read)
def settled_again(case: Case) -> list[Truth]:
    """Its reader, after a crash, knows that it was settled: nothing to find."""
    handed_over_again(case, SETTLED_BEFORE)
    return []


@_fault(_is_routed)
def archived_again(case: Case) -> list[Truth]:
    """The tap's queue gave its message twice: the same place in the same message is the same row."""
    row = case.tap[0]
    case.tap.append(replace(row, archived_at_ms=row.archived_at_ms + AGAIN_MS))
    return []


def _decided_at(row: LedgerRecord, milliseconds: int) -> LedgerRecord:
    return replace(row, received_at_ms=milliseconds, decided_at_ms=milliseconds)


@_fault(lambda case: case.overtaken_at_ms, _is_ordered)
def reordered(case: Case) -> list[Truth]:
    facts = []
    for place, route in enumerate(case.routes):
        if case.routing.is_ordered(route):
            case.ledger[place] = _decided_at(case.ledger[place], case.overtaken_at_ms or 0)
            facts.append(_of_row(case, Kind.REORDERED, Hop.ROUTER, case.ledger[place]))
    return facts


def _changed(event: Envelope, **more: str) -> Envelope:
    """The event as its service would have written it with other attributes, numbered as it was."""
    kept = {name: value for name, value in event.attributes.items() if name not in (EPOCH, SEQUENCE)}
    epoch, sequence = str(event.attributes[EPOCH]), int(str(event.attributes[SEQUENCE]))
    return stamp(write_event({**kept, **more}, event.data()), epoch, sequence)


def _become(case: Case, other: Case) -> None:
    case.event, case.passage = other.event, other.passage
    case.tap, case.ledger, case.handovers = other.tap, other.ledger, other.handovers


@_fault(_is_routed)
def expired(case: Case) -> list[Truth]:
    """The event's own `expirytime` had passed when the router saw it."""
    mortal = _changed(case.event, expirytime=str(case.event.attributes["recordedtime"]))
    _become(case, right_case(mortal, case.passage, case.routing))
    case.ledger = [replace(row, outcome=Outcome.EXPIRED, reason=BY_EVENT) for row in case.ledger]
    case.handovers = []
    return [_of_row(case, Kind.EXPIRED, Hop.ROUTER, row) for row in case.ledger]


def _refused(case: Case, reason: str) -> list[Truth]:
    """It ends so on each route that it would have taken."""
    owed = [row.route for row in case.ledger] or [None]
    _refuse(case, reason)
    return [fact(case, Kind.DEAD_LETTERED, Hop.ROUTER, route=route, detail=reason) for route in owed]


def _refuse(case: Case, reason: str) -> None:
    dead = replace(decided(case), outcome=Outcome.DEAD_LETTERED, reason=reason, route=None, destination=None)
    case.ledger = [dead, *letters(case, ROUTER_SOURCE)]
    case.handovers = []


@_fault(lambda case: case.routing.is_checked(case.event.type))
def dead_lettered(case: Case) -> list[Truth]:
    """The router refuses the payload; the letter is in somebody's inbox."""
    return _refused(case, Reason.PAYLOAD_INVALID)


def _given_up(case: Case, letters_of: str, reason: str, status: int | None = None) -> list[Truth]:
    """The consumer gives it up, and its dead letter is in somebody's inbox."""
    row = _ended(case, Outcome.DEAD_LETTERED, reason, status)
    case.ledger += letters(case, f"{letters_of}{row.channel.removesuffix('.inbox')}")
    return [replace(_handed(case, Kind.DEAD_LETTERED, row.channel), detail=reason)]


def _ended(case: Case, outcome: Outcome, reason: str, status: int | None = None) -> HandoverRecord:
    row = case.handovers[-1] = replace(case.handovers[-1], outcome=outcome, reason=reason, status=status)
    return row


_by_webhook = partial(_given_up, letters_of=WEBHOOK_LETTERS, reason="endpoint_refused", status=400)
_by_reader = partial(_given_up, letters_of=READER_LETTERS)

FAULTS.extend(
    (
        Fault("dead_behind_the_inbox", _is_posted, _by_webhook),
        Fault("dead_lettered_by_its_reader", _is_read, partial(_by_reader, reason="ValueError")),
        # Its reader ended while it had the event in hand, and the next one does not know what became of it.
        Fault("dead_lettered_in_doubt", _is_read, partial(_by_reader, reason=Reason.IN_DOUBT)),
    )
)


@_fault(_is_read)
def expired_at_hand_out(case: Case) -> list[Truth]:
    """Its time ended between the inbox and its reader."""
    passage = case.passage
    # A lifetime begins anew with the acceptance.
    lives_ms = (passage.decided_at_ms + passage.handed_over_at_ms) // 2 - passage.accepted_at_ms
    expiry = timestamp_of_ms(timestamp_ms(str(case.event.attributes["recordedtime"])) + lives_ms)
    _become(case, right_case(_changed(case.event, expirytime=expiry), passage, case.routing))
    return [_handed(case, Kind.EXPIRED, _ended(case, Outcome.EXPIRED, BY_EVENT).channel)]


def _wrongly_ended(case: Case, outcome: Outcome, reason: str) -> list[Truth]:
    """Its reader says how it ended, which nothing bears out."""
    return [_handed(case, Kind.LOST, _ended(case, outcome, reason).channel)]


FAULTS.extend(
    Fault(f"{outcome}_by_its_reader", _is_read, partial(_wrongly_ended, outcome=outcome, reason=reason))
    for outcome, reason in ((Outcome.EXPIRED, BY_EVENT), (Outcome.DROPPED, Reason.NO_INTEREST))
)


@_fault(_is_read, _begins_in_its_hour)
def taken_early(case: Case) -> list[Truth]:
    """The receipt is of a time before the event came into the inbox."""
    row = case.handovers[-1]
    case.handovers[-1] = replace(row, decided_at_ms=row.decided_at_ms - EARLY_MS)
    return [_handed(case, Kind.CAUSALITY, row.channel)]


@_fault(_keeps_no_order)
def offline(case: Case) -> list[Truth]:
    """The device had no connection for long: it takes its time, and nothing is wrong."""
    _become(case, right_case(case.event, _later(case.passage, LATE_MS), case.routing))
    return []


@_fault()
def archived_late(case: Case) -> list[Truth]:
    """It was accepted in time, and waited in the tap's queue for long."""
    case.tap = [replace(row, archived_at_ms=row.archived_at_ms + LATE_MS) for row in case.tap]
    return [fact(case, Kind.LATE, Hop.DEVICE_CLOUD)]


@_fault(_keeps_no_order)
def late_at_the_router(case: Case) -> list[Truth]:
    """It waited in the ingest queue for long."""
    case.ledger = [_decided_at(row, row.decided_at_ms + LATE_MS) for row in case.ledger]
    case.handovers = [
        replace(row, decided_at_ms=row.decided_at_ms + LATE_MS, entered_at_ms=row.entered_at_ms + LATE_MS)
        for row in case.handovers
    ]
    return [_of_row(case, Kind.LATE, Hop.ROUTER, row) for row in case.ledger]


@_fault(_is_kept_in_a_queue)
def forged_decision(case: Case) -> list[Truth]:
    """The ledger speaks of an event from the device that the tap has never seen."""
    row = case.ledger[-1]
    forged = replace(row, id=f"forged-{row.id}", message_id=f"{row.message_id}-forged")
    case.ledger.append(forged)
    claimed = _of_row(case, Kind.FORGED, Hop.ROUTER, forged)
    return [replace(claimed, id=forged.id, epoch=None, sequence=None)]


@_fault(_is_kept_in_a_queue)
def forged_receipt(case: Case) -> list[Truth]:
    """A reader leaves a receipt of what came into the inbox of another one only."""
    others, routing = case.routing.others(case.routes), case.routing
    inbox = next(
        each.destination for each in others if routing.is_recorded(each) and not routing.is_webhook(each)
    )
    case.handovers = [replace(handed_over(case, case.routes[-1]), channel=inbox, status=None)]
    return [fact(case, Kind.FORGED, Hop.INBOX_CONSUMER, destination=inbox)]


@_fault(_is_kept_in_a_queue)
def put_back_on_another_day(case: Case) -> list[Truth]:
    """An operator has put back an event of the device that the tap had on a day before."""
    row = case.ledger[-1]
    again = replace(row, id=f"put-back-{row.id}", message_id=f"{row.message_id}-again", put_back_by=OPERATOR)
    case.ledger.append(again)
    told = _of_row(case, Kind.PUT_BACK, Hop.ROUTER, again)
    return [replace(told, id=again.id, epoch=None, sequence=None)]


def _unregistered(client: str) -> Truth:
    """A client that no fleet knows."""
    return Truth(COVERAGE, None, client, detail="unregistered")


@_fault()
def forged_report(case: Case) -> list[Truth]:
    """Another client states in this device's name that less was stored: nothing may be believed of it."""
    intruder = f"{case.passage.client_id}-intruder"
    heading = reports.Heading(
        case.passage.client_id, str(case.event.attributes[EPOCH]), 0, "2026-03-01T00:00:00Z"
    )
    uplink = case.routing.uplink.address
    stated = reports.manifest(heading, [Manifest(uplink, 1, 10**6, 1, 0)], {uplink: 10**6}, 3_600)
    report = stamp(stamp_sender(stated, Sender(service=case.routing.contract.device.name)), intruder, 1)
    report = _changed(report, id=f"forged-{case.event.id}")
    forged = right_case(report, _brought(case.passage, "forged", client=intruder), case.routing)
    _refuse(forged, Reason.SENDER_NOT_ALLOWED)
    _add(case, forged)
    refused = fact(forged, Kind.DEAD_LETTERED, Hop.ROUTER, detail=Reason.SENDER_NOT_ALLOWED)
    return [fact(forged, Kind.FORGED, Hop.DEVICE_CLOUD), refused, _unregistered(intruder)]


@_fault(_is_kept_in_a_queue)
def forged_copy(case: Case) -> list[Truth]:
    """An event is lost, and another device delivers one with the same `source` and `id`."""
    forger = f"{case.passage.client_id}-forger"
    event = stamp(case.event.without((EPOCH, SEQUENCE)), forger, 1)
    forged = right_case(event, _brought(case.passage, "copy", client=forger), case.routing)
    lost = lost_without_a_word(case)
    _add(case, forged)
    two = (fact(each, Kind.TWO_SENDERS, Hop.DEVICE_CLOUD) for each in (case, forged))
    return [*lost, *two, _unregistered(forger)]


def _of_the_silent(case: Case) -> Envelope:
    silent = next(
        each.name
        for each in case.routing.contract.of_kind(ParticipantKind.DEVICE_SERVICE)
        if each.sends == ()
    )
    return _changed(case.event, **{SENDER_SERVICE: silent})


@_fault(_is_routed)
def delivered_though_not_allowed(case: Case) -> list[Truth]:
    """A service that may send nothing sends it, and the router delivers it."""
    _become(case, right_case(_of_the_silent(case), case.passage, case.routing))
    return [_of_row(case, Kind.NOT_ALLOWED, Hop.ROUTER, row) for row in case.ledger]


@_fault(_is_routed)
def refused_for_its_sender(case: Case) -> list[Truth]:
    """The same, and the router refuses it as it should."""
    _become(case, right_case(_of_the_silent(case), case.passage, case.routing))
    return _refused(case, Reason.SENDER_NOT_ALLOWED)


@_fault(_is_routed)
def lost_as_not_allowed(case: Case) -> list[Truth]:
    """The router refuses it for its sender, who may send it."""
    owed = case.ledger
    _refuse(case, Reason.SENDER_NOT_ALLOWED)
    return [_of_row(case, Kind.LOST, Hop.ROUTER, row) for row in owed]


@_fault(_is_routed)
def decided_unseen(case: Case) -> list[Truth]:
    """The router has not seen the contract in force, and nobody decides again."""
    case.ledger = [replace(row, basis=Basis.BUNDLED) for row in case.ledger]
    return [fact(case, Kind.UNCONFIRMED, Hop.ROUTER)]


@_fault(_keeps_no_order)
def decided_again(case: Case) -> list[Truth]:
    """The router has not seen the contract in force, and decides again when it has: that makes a copy."""
    again = [replace(row, decided_at_ms=row.decided_at_ms + AGAIN_MS, attempt=2) for row in case.ledger]
    case.ledger = [*(replace(row, basis=Basis.BUNDLED) for row in case.ledger), *again]
    return [_of_row(case, Kind.DUPLICATE, Hop.ROUTER, row) for row in again]


@_fault(lambda case: case.predecessor and case.predecessor.cloud(case.event))
def decided_by_the_predecessor(case: Case) -> list[Truth]:
    """One router goes on by the contract before, long after its successor was in force."""
    case.routing = case.predecessor or case.routing
    _become(case, right_case(case.event, case.passage, case.routing))
    return [_of_row(case, Kind.STALE_CONTRACT, Hop.ROUTER, row) for row in case.ledger]


@_fault(_is_routed, _ends_in_its_hour)
def expired_by_a_fast_clock(case: Case) -> list[Truth]:
    """The router's clock is ahead, and expires what had time left."""
    passage = case.passage
    expiry = timestamp_of_ms(passage.accepted_at_ms + FAST_MS // 2)
    _become(case, right_case(_changed(case.event, expirytime=expiry), passage, case.routing))
    case.ledger = [
        replace(row, decided_at_ms=row.decided_at_ms + FAST_MS, outcome=Outcome.EXPIRED, reason=BY_EVENT)
        for row in case.ledger
    ]
    case.handovers = []
    return [
        _of_row(case, kind, Hop.ROUTER, row) for row in case.ledger for kind in (Kind.LOST, Kind.CLOCK_SKEW)
    ]


@_fault(_is_posted, _ends_in_its_hour)
def put_by_a_fast_clock(case: Case) -> list[Truth]:
    """The router's clock is ahead, so that by its record the webhook was quicker."""
    ahead = [replace(row, decided_at_ms=row.decided_at_ms + FAST_MS) for row in case.ledger]
    case.ledger = ahead
    return [_of_row(case, Kind.CLOCK_SKEW, Hop.ROUTER, row) for row in ahead]


@_fault(_is_routed)
def entered_at_another_time(case: Case) -> list[Truth]:
    """The ledger has the frame at another time than the tap."""
    case.ledger = [replace(row, entered_at_ms=row.entered_at_ms - HOUR_MS) for row in case.ledger]
    return [fact(case, Kind.CONTRADICTION, Hop.ARCHIVE)]


@_fault(_is_kept_in_a_queue, _keeps_no_order, lambda case: case.earlier_id)
def under_another_id(case: Case) -> list[Truth]:
    """A service gives an event the id of an earlier one: its readers drop it as a duplicate."""
    _become(case, right_case(_changed(case.event, id=str(case.earlier_id)), case.passage, case.routing))
    return [fact(case, Kind.REUSED_ID, Hop.DEVICE_CLOUD)]


@_fault(_is_kept_in_a_queue, _keeps_no_order, lambda case: case.neighbour)
def by_another_client(case: Case) -> list[Truth]:
    """One device's event comes over the connection of another."""
    passage = _brought(case.passage, "foreign", client=case.neighbour)
    _become(case, right_case(case.event, passage, case.routing))
    return [fact(case, Kind.FOREIGN_EPOCH, Hop.DEVICE_CLOUD, device=case.neighbour)]


@_fault(_is_kept_in_a_queue, _keeps_no_order, _begins_in_its_hour)
def decided_early(case: Case) -> list[Truth]:
    case.ledger = [_decided_at(row, row.decided_at_ms - EARLY_MS) for row in case.ledger]
    return [_of_row(case, Kind.CAUSALITY, Hop.ROUTER, row) for row in case.ledger]


def _other_type(case: Case) -> str | None:
    contract = case.routing.contract
    sends = contract.participants[str(case.event.attributes[SENDER_SERVICE])].sends or ()
    return next((each for each in contract.event_types if each in sends and each != case.event.type), None)


@_fault(lambda case: _other_type(case))
def of_another_type(case: Case) -> list[Truth]:
    """The ledger calls the event by another type that its sender may send."""
    other = _other_type(case)
    case.ledger = [replace(row, type=str(other)) for row in case.ledger]
    return [fact(case, Kind.TYPE_MISMATCH, Hop.ROUTER)]


@_fault()
def altered_in_the_ledger(case: Case) -> list[Truth]:
    """Somebody alters the digest that the router wrote; the manifest bears out the tap."""
    case.ledger = [replace(row, digest=short_digest(b"{}")) for row in case.ledger]
    return [fact(case, Kind.CONTENT_MISMATCH, Hop.ARCHIVE)]


def altered_in_the_tap(case: Case) -> list[Truth]:
    """Somebody alters the event in the tap; ledger and manifest have the digest of what it was."""
    case.tap = [replace(row, event=_altered(case.event).json) for row in case.tap]
    return [fact(case, Kind.CONTENT_MISMATCH, Hop.ARCHIVE)]


def altered_alike(case: Case) -> list[Truth]:
    """Somebody alters tap and ledger so that they agree; the manifest alone has the digest of what it was."""
    _become(case, right_case(_altered(case.event), case.passage, case.routing))
    return []


def _altered(event: Envelope) -> Envelope:
    """The event with another value in its data."""
    return parse_event(event.json.replace('"value":', '"value":1', 1))


@_fault(_is_kept_in_a_queue, _keeps_no_order, lambda case: case.neighbour)
def of_another_sender(case: Case) -> list[Truth]:
    """The ledger's sender is not the client that it names."""
    sender = case.sender.replace(case.passage.client_id, str(case.neighbour))
    case.ledger = [replace(row, sender=sender) for row in case.ledger]
    return [fact(case, Kind.SENDER_MISMATCH, Hop.ROUTER)]


def _newer(case: Case, **members: Any) -> list[Truth]:
    """A newer router writes what this version does not know: nobody can tell what became of the event."""
    case.is_newer = not members
    case.ledger = [replace(row, **members) for row in case.ledger]
    return [
        _of_row(case, kind, hop, row)
        for row in case.ledger
        for kind, hop in ((Kind.NOT_UNDERSTOOD, Hop.ROUTER), (QUARANTINED, None))
    ]


def _unusable(case: Case, kind: Kind, hop: Hop, **members: Any) -> list[Truth]:
    """The consumer's row has a value by which nothing can be judged."""
    row = case.handovers[-1] = replace(case.handovers[-1], **members)
    known = replace(_handed(case, kind, row.channel), hop=hop)
    return [known, replace(known, kind=QUARANTINED, hop=None, route=None)]


_unknown = partial(_unusable, kind=Kind.NOT_UNDERSTOOD, hop=Hop.INBOX_CONSUMER, outcome="parked")
_impossible = partial(_unusable, kind=Kind.CONTRADICTION, hop=Hop.ARCHIVE)

FAULTS.extend(
    (
        Fault("unknown_outcome", _is_kept_in_a_queue, partial(_newer, outcome="held_for_review")),
        Fault("unknown_contract", _is_kept_in_a_queue, partial(_newer, contract_version="0123456789abcdef")),
        Fault("attempt_as_text", _is_kept_in_a_queue, partial(_newer, attempt="1")),
        Fault("with_new_members", _is_kept_in_a_queue, _newer),
        Fault("unknown_end", _is_posted, _unknown),
        Fault("unknown_receipt", _is_read, _unknown),
        # By an answer that refuses it, and at no attempt.
        Fault("impossible_end", _is_posted, partial(_impossible, status=500)),
        Fault("impossible_receipt", _is_read, partial(_impossible, attempt=0)),
    )
)
