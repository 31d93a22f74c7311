"""Inbox to consumer, where that is a webhook: what became of an event that was put into the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventplane.delivery import Outcome
from eventplane.expiry import BY_CHANNEL
from eventplane.handover import HANDOVERS
from glue_jobs.delivery_audit.contract_rules import AuditRules
from glue_jobs.delivery_audit.event import Event
from glue_jobs.delivery_audit.event_group import HandoverRow, LedgerRow, Verdict


class Consumption(NamedTuple):
    """What became of an event in a webhook's inbox, into which it was `put` so many times.

    `end` is the handover that counts, None without one; `handed_over` counts those that the endpoint took.
    `hole` is the hour of the handovers without records in which it is missing, for `unrecorded`.
    """

    verdict: Verdict
    put: int
    put_at_ms: int
    end: HandoverRow | None
    handed_over: int
    hole: int | None = None


def consumption(event: Event, inbox: str, put: Sequence[LedgerRow], rules: AuditRules) -> Consumption:
    """Judge the last hop of an event that the rows `put` into the webhook `inbox`.

    Without rows a handover has shown that it was there.
    """
    ends = [each for each in event.handovers if each.channel == inbox]
    put_at_ms = min([row.decided_at_ms for row in put] or [each.entered_at_ms for each in ends])
    handed_over = sum(each.outcome == Outcome.DELIVERED for each in ends)
    if ends:
        end = ends[0]
        verdict = Verdict(end.outcome) if _is_backed(event, end, put, rules) else Verdict.LOST
        return Consumption(verdict, len(put), put_at_ms, end, handed_over)
    verdict, hole = Verdict.LOST, None
    patience_ms = rules.patience_ms[inbox]
    if any(each.row.archive == HANDOVERS and each.route in (None, inbox) for each in event.unclear):
        verdict = Verdict.NOT_UNDERSTOOD
    elif rules.is_open(put_at_ms + patience_ms):
        verdict = Verdict.PENDING
    elif (hole := rules.hole(HANDOVERS, put_at_ms, patience_ms)) is not None:
        verdict = Verdict.UNRECORDED
    return Consumption(verdict, len(put), put_at_ms, None, handed_over, hole)


def _is_backed(event: Event, end: HandoverRow, put: Sequence[LedgerRow], rules: AuditRules) -> bool:
    """Whether an event of the tap had expired, or could be dropped: that is known, and not taken on trust."""
    first = event.first
    if first is None:
        return True
    if end.outcome == Outcome.EXPIRED:
        if first.expires_at_ms is not None and end.decided_at_ms >= first.expires_at_ms:
            return True
        worth_ms = rules.webhook_worth_ms(end.channel)
        age_ms = end.decided_at_ms - end.entered_at_ms
        return end.reason == BY_CHANNEL and worth_ms is not None and age_ms >= worth_ms
    if end.outcome == Outcome.DROPPED:
        return not put or any(event.was_best_effort(row, rules) for row in put)
    return True
