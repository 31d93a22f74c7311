"""The judgement of one identity: what its records prove of each event and route, and what contradicts what.

Pure Python: the rows are tuples (`event_group`), the rules the core's (`contract_rules`). Each event of the
identity is put in order first (`event`), then judged route by route (`delivery`, `last_hop`); what is worth
knowing becomes findings (`delivery_findings`) and counts (`delivery_counts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from eventplane.delivery import Outcome
from eventplane.handover import HANDOVERS
from eventplane.ledger import LEDGER, TAP
from eventplane.sender import SENDER_SERVICE, sender_in_frame
from glue_jobs.delivery_audit.contract_rules import RECORD_MS, AuditRules
from glue_jobs.delivery_audit.delivery import Delivery, deliveries
from glue_jobs.delivery_audit.delivery_counts import count
from glue_jobs.delivery_audit.delivery_findings import (
    about,
    findings,
    is_other_client,
    of_unclear_row,
    of_unknown_handover,
)
from glue_jobs.delivery_audit.event import Event
from glue_jobs.delivery_audit.event_group import (
    NO_ROUTE,
    ROWS,
    TO_REPLAY,
    UNRECORDED_IN_HOUR,
    EventGroup,
    HandoverRow,
    HoleCount,
    Judgement,
    LedgerRow,
    NotInTap,
    ReplayRow,
    RouteCount,
    RowCount,
    Rules,
    TapRow,
    Verdict,
)
from glue_jobs.delivery_audit.findings import Kind
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.records import (
    Unclear,
    each_once,
    each_place_once,
    handover_fault,
    ledger_fault,
    unclear_handover,
    unclear_ledger,
    unclear_line,
    unclear_tap,
)
from glue_jobs.delivery_audit.refused_items import judge_items

_WITHOUT_RECORD: Final = frozenset({Verdict.UNRECORDED, Verdict.NOT_UNDERSTOOD, Verdict.PENDING})


def judge(group: EventGroup, rules: Rules, into: Judgement | None = None) -> Judgement:
    """Judge everything that the archive has of one identity; add it to `into`, and return that.

    The order of the rows does not matter, nor does a row that lies in a second object.
    """
    made = Judgement() if into is None else into
    _judge(group, _audit_rules(rules), made)
    return made


@lru_cache(maxsize=4)
def _audit_rules(rules: Rules) -> AuditRules:
    return AuditRules(rules)


def _judge(group: EventGroup, rules: AuditRules, into: Judgement) -> None:
    copies, ledger, handovers, unclear = _sorted_out(group, rules)
    _count_rows({TAP: copies, LEDGER: ledger, HANDOVERS: handovers}, unclear, into)
    items = [row for row in ledger if not row.id]
    if items or group.items:
        judge_items(group.items, items, rules, into)
    events = _by_sender(copies, ledger, handovers)
    others = _join_mismatched(events) if len(events) > 1 else {}
    senders = sorted(events)
    for sender in senders:
        event = events[sender]
        if unclear:
            event.unclear = [each for each in unclear if each.row.sender in (None, sender)]
        event.settle(rules, group.letters)
        shown = _judge_event(event, rules, into)
        if len(senders) > 1:
            into.findings.append(about(shown, Kind.TWO_SENDERS, Hop.DEVICE_CLOUD, ", ".join(senders)))
        if sender in others:
            names = f"{sender} in the tap, {others[sender]} in the ledger"
            into.findings.append(about(shown, Kind.SENDER_MISMATCH, Hop.ARCHIVE, names))


def _judge_event(event: Event, rules: AuditRules, into: Judgement) -> Delivery:
    """Judge one event; return the delivery by which findings that are of no route name it."""
    judged = list(deliveries(event, rules))
    for delivery in judged:
        count(delivery, rules, into)
        into.findings.extend(findings(delivery, rules))
        _follow_up(delivery, into)
    if event.handovers:
        excused = {each.destination for each in judged if each.verdict in _WITHOUT_RECORD}
        _judge_unknown_handovers(event, excused, rules, into)
    return judged[0]


def _count_rows(good: Mapping[str, Sequence[object]], unclear: Iterable[Unclear], into: Judgement) -> None:
    for archive, rows in good.items():
        if rows:
            into.counts[RowCount(ROWS, archive)] += len(rows)
    for each in unclear:
        into.quarantine.append(each.row)
        into.counts[RowCount(ROWS, each.row.archive, each.row.reason)] += 1
        if not each.is_understood:
            into.findings.append(of_unclear_row(each))


def _sorted_out(
    group: EventGroup, rules: AuditRules
) -> tuple[Sequence[TapRow], Sequence[LedgerRow], Sequence[HandoverRow], list[Unclear]]:
    """The rows that can be judged, each once, and those that cannot."""
    versions = rules.by_version
    unclear = [unclear_line(each, versions) for each in group.bad]
    copies, ledger, handovers = [], [], []
    for row in each_place_once(group.tap):
        if row.unknown_members:
            unclear.append(unclear_tap(row))
        else:
            copies.append(row)
    for decision in each_once(group.ledger):
        if fault := ledger_fault(decision, versions):
            unclear.append(unclear_ledger(decision, fault))
        else:
            ledger.append(decision)
    for end in each_once(group.handovers):
        if fault := handover_fault(end):
            unclear.append(unclear_handover(end, fault))
        elif end.id:
            handovers.append(end)
    return copies, ledger, handovers, unclear


def _by_sender(
    copies: Iterable[TapRow], ledger: Iterable[LedgerRow], handovers: Iterable[HandoverRow]
) -> dict[str, Event]:
    """The events of the identity: each sender has its own."""
    events: dict[str, Event] = {}

    def event_of(sender: str) -> Event:
        if sender not in events:
            events[sender] = Event(sender)
        return events[sender]

    for copy in copies:
        named = {SENDER_SERVICE: copy.service} if copy.service else {}
        event_of(str(sender_in_frame(copy.client_id, named))).copies.append(copy)
    for row in ledger:
        if row.id:
            event_of(row.sender or "").ledger.append(row)
    for end in handovers:
        event_of(end.sender or "").handovers.append(end)
    return events


def _join_mismatched(events: dict[str, Event]) -> dict[str, str]:
    """Join what tap and ledger have of one frame under two clients; return the ledger's sender by the tap's.

    A frame has one time of acceptance. Where the tap alone has one sender and the ledger alone another, with
    that same time and type, one of the records names the wrong client, and no event is missing.
    """
    joined: dict[str, str] = {}
    for sender, event in sorted(events.items()):
        if not event.copies or event.ledger:
            continue
        frames = {(each.accepted_at_ms, each.type) for each in event.copies}
        for other_sender, other in sorted(events.items()):
            rows = {(row.entered_at_ms, row.type) for row in other.ledger}
            if not other.copies and not rows.isdisjoint(frames):
                event.ledger, event.handovers = other.ledger, [*event.handovers, *other.handovers]
                if not any(map(is_other_client, other.ledger)):
                    # A row that contradicts itself has a finding of its own.
                    joined[sender] = other_sender
                del events[other_sender]
                break
    return joined


def _follow_up(delivery: Delivery, into: Judgement) -> None:
    """Note what has to be sent again, and what the tap does not have."""
    event, first, route, verdict = delivery.event, delivery.event.first, delivery.route, delivery.verdict
    if route is None:
        return
    if first is not None:
        if verdict is Verdict.LOST and route != NO_ROUTE:
            said = delivery.found[0].row if delivery.found else None
            version = said.contract_version if said else event.versions[0]
            into.replay.append(
                ReplayRow(
                    date=delivery.date,
                    sender=event.sender,
                    source=first.source,
                    id=first.id,
                    type=first.type,
                    device=first.client_id,
                    route=route,
                    destination=delivery.destination,
                    contract_version=version,
                    entered_at_ms=first.accepted_at_ms,
                    archive_file=first.file,
                )
            )
            into.counts[RouteCount(TO_REPLAY, delivery.date, route, delivery.destination)] += 1
    elif verdict is Verdict.UNEXPLAINED:
        said = delivery.found[0].row
        into.not_in_tap.append(
            NotInTap(
                client_id=said.client_id,
                sender=event.sender,
                source=said.source,
                id=said.id,
                type=said.type,
                route=route,
                destination=delivery.destination,
                contract_version=said.contract_version,
                entered_at_ms=min(row.entered_at_ms for row in event.ledger),
                file=said.file,
            )
        )


def _judge_unknown_handovers(
    event: Event, excused: Collection[str | None], rules: AuditRules, into: Judgement
) -> None:
    """Judge handovers of what the ledger never put into the inbox.

    A handover proves a delivery that was due and has no record: its inbox is among the `excused`.
    """
    known = {each.row.destination for each in event.decisions if each.row.outcome == Outcome.DELIVERED}
    for end in event.handovers:
        if end.channel in known or end.channel in excused or rules.is_open(end.entered_at_ms):
            continue
        # The ledger's record was written about when the event came into the inbox.
        hole = rules.hole(LEDGER, end.entered_at_ms - RECORD_MS, wait_ms=RECORD_MS)
        if hole is not None:
            into.counts[HoleCount(UNRECORDED_IN_HOUR, LEDGER, hole)] += 1
        elif rules.sees_all and not event.unclear:
            # What came into an inbox the day before is in the ledger of that day.
            into.findings.append(of_unknown_handover(event, end))
