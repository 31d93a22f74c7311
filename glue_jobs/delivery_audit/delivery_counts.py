"""What a delivery adds to the figures, and how long it took."""

from __future__ import annotations

from typing import Final

from eventplane.contract import Place
from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.handover import HANDOVERS
from eventplane.ledger import LEDGER
from glue_jobs.delivery_audit.contract_rules import AuditRules
from glue_jobs.delivery_audit.delivery import Delivery
from glue_jobs.delivery_audit.event import UNBACKED
from glue_jobs.delivery_audit.event_group import (
    BY_VERDICT,
    CLOUD_EVENTS,
    CONSUMED,
    DUPLICATED,
    EVENTS,
    EVERY_ROUTE,
    EXPECTED,
    EXPECTED_ON,
    HANDED_OVER_AGAIN,
    HOUR_MS,
    LATE_IN_HOUR,
    LETTERS,
    LOST_IN_HOUR,
    MAY_EXPIRE,
    NO_ROUTE,
    PENDING_IN_HOUR,
    PUT_COPIES,
    PUT_EVENTS,
    REPLAY,
    REPLAYED,
    TAP_COPIES,
    UNRECORDED_IN_HOUR,
    WITHOUT_RECORD_IN_HOUR,
    DayCount,
    HoleCount,
    HourCount,
    InboxCount,
    Judgement,
    LatencyKey,
    LetterCount,
    RouteCount,
    TapRow,
    Verdict,
)
from glue_jobs.delivery_audit.hops import Span
from glue_jobs.delivery_audit.last_hop import Consumption

_EXPECTED: Final = frozenset(EXPECTED)
_IN_HOUR: Final = {
    Verdict.LOST: LOST_IN_HOUR,
    Verdict.PENDING: PENDING_IN_HOUR,
    Verdict.UNRECORDED: WITHOUT_RECORD_IN_HOUR,
}
_UP, _THROUGH, _ALL, _LAST = (
    str(each)
    for each in (
        Span.DEVICE_TO_CLOUD,
        Span.CLOUD_TO_INBOX,
        Span.DEVICE_TO_INBOX,
        Span.INBOX_TO_CONSUMER,
    )
)


def count(delivery: Delivery, rules: AuditRules, into: Judgement) -> None:
    """Count one delivery."""
    event, first = delivery.event, delivery.event.first
    if delivery.verdict is not None:
        _count_verdict(delivery, delivery.verdict, into)
    if delivery.is_first_row:
        _count_event(delivery, first, rules, into)
    if event.is_dead_lettered:
        _count_letters(delivery, into)
    if delivery.out and delivery.destination is not None:
        _count_put(delivery, delivery.destination, into)
    if delivery.end is not None:
        _count_last_hop(delivery, delivery.end, into)
    if first is not None:
        _count_by_hour(delivery, first, rules, into)


def _count_verdict(delivery: Delivery, verdict: Verdict, into: Judgement) -> None:
    counts, where = into.counts, (delivery.date, delivery.route, delivery.destination)
    counts[RouteCount(BY_VERDICT, *where, str(verdict))] += 1
    if delivery.event.first is not None and verdict in _EXPECTED and delivery.route != NO_ROUTE:
        counts[RouteCount(EXPECTED_ON, *where)] += 1
    if delivery.hole is not None:
        counts[HoleCount(UNRECORDED_IN_HOUR, LEDGER, delivery.hole)] += 1


def _count_event(delivery: Delivery, first: TapRow | None, rules: AuditRules, into: Judgement) -> None:
    """Count the event itself, on one of its routes."""
    counts, where = into.counts, (delivery.date, delivery.route, delivery.destination)
    if first is None:
        if delivery.event.ledger and not delivery.event.from_device(rules):
            counts[DayCount(CLOUD_EVENTS, delivery.date)] += 1
        return
    counts[RouteCount(EVENTS, *where)] += 1
    if (again := len(delivery.event.copies) - delivery.event.payloads) > 0:
        counts[RouteCount(TAP_COPIES, *where)] += again
        counts[HourCount(TAP_COPIES, first.client_id, first.accepted_at_ms // HOUR_MS)] += again
    if first.type == DEAD_LETTER_TYPE:
        counts[LetterCount(LETTERS, str(Place.DEVICE), first.dead_letter_reason or None)] += 1


def _count_put(delivery: Delivery, inbox: str, into: Judgement) -> None:
    """Count what was put into the inbox."""
    counts, event, date = into.counts, delivery.event, delivery.date
    if copies := delivery.copies:
        counts[InboxCount(PUT_COPIES, date, inbox)] += copies
        if copies > 1 and (again := copies - event.payloads) > 0:
            counts[RouteCount(DUPLICATED, date, delivery.route, inbox)] += again
        _time(delivery, into)
    if event.was_replayed and any(row.reason == REPLAY for row in delivery.out):
        counts[RouteCount(REPLAYED, date, delivery.route, inbox)] += 1
    if delivery.opens_inbox:
        counts[InboxCount(PUT_EVENTS, date, inbox)] += 1
        if delivery.end is None and event.first is not None and event.first.expires_at_ms is not None:
            counts[InboxCount(MAY_EXPIRE, date, inbox)] += 1


def _count_letters(delivery: Delivery, into: Judgement) -> None:
    """Count the dead letters about the event that the ledger has, one a route."""
    routes = {delivery.route, EVERY_ROUTE} if delivery.is_first_row else {delivery.route}
    for route in routes:
        reasons = [
            each.row.reason or ""
            for each in delivery.event.decisions
            if each.route == route and each.outcome in (UNBACKED, Outcome.DEAD_LETTERED)
        ]
        if reasons:
            into.counts[LetterCount(LETTERS, str(Place.CLOUD), min(reasons) or None)] += 1


def _count_last_hop(delivery: Delivery, last: Consumption, into: Judgement) -> None:
    date, inbox = delivery.date, delivery.destination or ""
    into.counts[InboxCount(CONSUMED, date, inbox, str(last.verdict))] += 1
    again = last.handed_over - max(last.put, 1)
    if again > 0:
        into.counts[InboxCount(HANDED_OVER_AGAIN, date, inbox)] += again
    if last.hole is not None:
        into.counts[HoleCount(UNRECORDED_IN_HOUR, HANDOVERS, last.hole)] += 1


def _count_by_hour(delivery: Delivery, first: TapRow, rules: AuditRules, into: Judgement) -> None:
    """Count what the device's hour of acceptance has to show of the router."""
    hour = first.accepted_at_ms // HOUR_MS
    measure = delivery.verdict and _IN_HOUR.get(delivery.verdict)
    if measure:
        into.counts[HourCount(measure, first.client_id, hour)] += 1
    out = delivery.out[0] if delivery.out else None
    if (delivery.is_first_row and rules.is_late(first.accepted_at_ms, first.archived_at_ms)) or (
        out is not None and rules.is_late(out.entered_at_ms, out.decided_at_ms)
    ):
        into.counts[HourCount(LATE_IN_HOUR, first.client_id, hour)] += 1


def _time(delivery: Delivery, into: Judgement) -> None:
    """Note how long the first delivery of the event took, over each hop."""
    event, first, out, route = delivery.event, delivery.event.first, delivery.out[0], delivery.route or ""
    priority = delivery.found[0].row.priority or event.ledger[0].priority
    latencies = into.latencies
    if first is not None and first.recorded_at_ms is not None:
        up_ms, all_ms = first.accepted_at_ms - first.recorded_at_ms, out.decided_at_ms - first.recorded_at_ms
        latencies[LatencyKey(_UP, priority, route, up_ms)] += 1
        latencies[LatencyKey(_ALL, priority, route, all_ms)] += 1
    latencies[LatencyKey(_THROUGH, priority, route, out.decided_at_ms - out.entered_at_ms)] += 1
    last = delivery.end and delivery.end.end
    if last is not None:
        taken_ms = last.decided_at_ms - last.entered_at_ms
        latencies[LatencyKey(_LAST, priority, route, taken_ms)] += 1
