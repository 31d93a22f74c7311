"""What is worth knowing of a delivery, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eventplane.ledger import HANDOVERS, LEDGER, TAP, Basis
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.contract_rules import AuditRules
from glue_jobs.delivery_audit.delivery import Consumption, Delivery
from glue_jobs.delivery_audit.event import CLOCK_SLACK_MS, Event, Unclear, by_queue_clock_ms
from glue_jobs.delivery_audit.event_group import LedgerRow, Verdict
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind

_ENDED: Final = frozenset({Verdict.EXPIRED, Verdict.DROPPED, Verdict.DEAD_LETTERED})


def findings(delivery: Delivery, rules: AuditRules) -> Iterator[Finding]:
    """Return what is to be known of one delivery, hop by hop."""
    if delivery.is_first_row:
        yield from _of_event(delivery, rules)
    if delivery.found:
        yield from _of_decisions(delivery, rules)
    yield from _of_verdict(delivery)
    if delivery.end is not None:
        yield from _of_last_hop(delivery, delivery.end)


def _of_event(delivery: Delivery, rules: AuditRules) -> Iterator[Finding]:
    """What is not of a route."""
    event, first = delivery.event, delivery.event.first
    if first is not None:
        if (copies := len(event.copies)) > (payloads := event.payloads):
            yield about(delivery, Kind.DUPLICATE, Hop.DEVICE_CLOUD, f"{copies} copies in the tap")
        if payloads > 1:
            yield about(delivery, Kind.REUSED_ID, Hop.DEVICE_CLOUD, f"{payloads} different payloads")
        if rules.is_late(first.accepted_at_ms, first.archived_at_ms):
            stored = f"archived {first.archived_at_ms - first.accepted_at_ms} ms after acceptance"
            yield about(delivery, Kind.LATE, Hop.DEVICE_CLOUD, stored)
        if event.ledger:
            sent = {each.type for each in event.copies}
            other = sorted({row.type for row in event.ledger if row.type is not None} - sent)
            if other:
                types = f"{first.type} in the tap, {', '.join(other)} in the ledger"
                yield about(delivery, Kind.TYPE_MISMATCH, Hop.ROUTER, types)
    if event.early and _is_unconfirmed(event, rules):
        yield about(delivery, Kind.UNCONFIRMED, Hop.ROUTER, f"by contract {delivery.contract_version}")
    for client in sorted({row.client_id or "" for row in event.ledger if is_other_client(row)}):
        names = f"the ledger names the sender {event.ledger[0].sender} and the client {client}"
        yield about(delivery, Kind.SENDER_MISMATCH, Hop.ROUTER, names)


def is_other_client(row: LedgerRow) -> bool:
    """Whether the row's sender is on another device than its client."""
    sender, client = row.sender, row.client_id
    return sender is not None and client is not None and "/" in sender and not sender.startswith(f"{client}/")


def _is_unconfirmed(event: Event, rules: AuditRules) -> bool:
    """Whether a router decided before it saw the contract in force, and none by that one since."""
    last_ms = max(row.decided_at_ms for row in event.early)
    confirmed = any(row.basis != Basis.BUNDLED and row.decided_at_ms >= last_ms for row in event.ledger)
    return not confirmed and not rules.is_open(last_ms)


def _of_decisions(delivery: Delivery, rules: AuditRules) -> Iterator[Finding]:
    first, rows = delivery.event.first, [each.row for each in delivery.found]
    if delivery.out:
        delivered = delivery.out[0]
        # Each copy that a device sends is routed, rightly.
        came = max(len(delivery.event.copies), 1)
        if len(delivery.out) > came and (copies := delivery.copies) > came:
            many = f"{copies} copies in the inbox, of {came} that came"
            yield about(delivery, Kind.DUPLICATE, Hop.ROUTER, many)
        if rules.is_late(delivered.entered_at_ms, delivered.decided_at_ms):
            after = f"{delivered.decided_at_ms - delivered.entered_at_ms} ms after it entered"
            yield about(delivery, Kind.LATE, Hop.ROUTER, after)
        if any(rules.is_forbidden(row) for row in delivery.out):
            sent = f"{delivery.event.sender} to {_or_unknown(delivery.destination)}"
            yield about(delivery, Kind.NOT_ALLOWED, Hop.ROUTER, sent)
    if any(rules.is_stale(row) for row in rows):
        yield about(delivery, Kind.STALE_CONTRACT, Hop.ROUTER, f"by contract {delivery.contract_version}")
    if first is not None:
        before_ms = max(first.accepted_at_ms - row.decided_at_ms for row in rows)
        if before_ms > CLOCK_SLACK_MS:
            early = f"decided {before_ms} ms before it was accepted"
            yield about(delivery, Kind.CAUSALITY, Hop.ROUTER, early)
    accepted_at_ms = first.accepted_at_ms if first else None
    skews = [skew for row in rows if (skew := _clock_skew_ms(row, accepted_at_ms))]
    if skews:
        skew_ms = max(skews)
        side = "ahead" if skew_ms > 0 else "behind"
        clock = f"the router's clock is at least {abs(skew_ms)} ms {side}"
        yield about(delivery, Kind.CLOCK_SKEW, Hop.ROUTER, clock)


def _clock_skew_ms(row: LedgerRow, accepted_at_ms: int | None) -> int | None:
    """How far a router's clock is at least ahead of IoT Core's and the queue's, milliseconds.

    Negative where it is behind, None where they agree as far as can be told. What was decided before its
    acceptance is not explained by a clock.
    """
    latest_ms = by_queue_clock_ms(row)
    if latest_ms is not None and row.decided_at_ms > latest_ms:
        return row.decided_at_ms - latest_ms
    behind_ms = max(row.entered_at_ms, row.received_at_ms or 0) - row.decided_at_ms
    if behind_ms <= CLOCK_SLACK_MS:
        return None
    if accepted_at_ms is not None and accepted_at_ms - row.decided_at_ms > CLOCK_SLACK_MS:
        return None
    return -behind_ms


def _of_verdict(delivery: Delivery) -> Iterator[Finding]:
    verdict = delivery.verdict
    if verdict is None or verdict is Verdict.DELIVERED:
        return
    said = delivery.found[0] if delivery.found else None
    reason = (said and said.row.reason) or "no reason given"
    if verdict is Verdict.LOST:
        claimed = f"recorded as {said.outcome}, {reason}; nothing bears it out" if said else "no record"
        yield about(delivery, Kind.LOST, Hop.ROUTER, claimed)
    elif verdict is Verdict.MISROUTED and said is not None:
        if said.outcome == Outcome.DELIVERED and not delivery.event.is_routed:
            where = f"to {_or_unknown(delivery.destination)}"
            yield about(delivery, Kind.UNROUTED_DELIVERED, Hop.ROUTER, where)
        else:
            yield about(delivery, Kind.MISROUTED, Hop.ROUTER, f"recorded as {said.outcome}")
    elif verdict in _ENDED:
        yield about(delivery, Kind(verdict), Hop.ROUTER, reason)
    elif verdict is Verdict.INTERNAL and said is not None and said.outcome in _ENDED:
        yield about(delivery, Kind(said.outcome), Hop.ROUTER, reason)


def _of_last_hop(delivery: Delivery, last: Consumption) -> Iterator[Finding]:
    end, hop = last.end, Hop.INBOX_CONSUMER
    where: dict[str, Any] = {"at_ms": last.put_at_ms}
    if end is not None:
        where["archive_file"] = end.file
        answer = f"{_or_unknown(end.reason)}, HTTP status {_or_unknown(end.status)}"
        claimed = f"recorded as {end.outcome}, {_or_unknown(end.reason)}; nothing bears it out"
        if last.verdict is Verdict.LOST:
            yield about(delivery, Kind.LOST, hop, claimed, **where)
        elif last.verdict in _ENDED:
            detail = end.reason if last.verdict is Verdict.EXPIRED else answer
            yield about(delivery, Kind(last.verdict), hop, detail, **where)
        put = max(last.put, 1)
        before_ms = last.put_at_ms - end.decided_at_ms
        if last.put and before_ms > CLOCK_SLACK_MS:
            early = f"handed over {before_ms} ms before it was put into the inbox"
            yield about(delivery, Kind.CAUSALITY, hop, early, **where)
        if last.handed_over > put:
            too_often = f"{last.handed_over} handovers of {put} copies"
            yield about(delivery, Kind.DUPLICATE, hop, too_often, **where)
    elif last.verdict is Verdict.LOST:
        yield about(delivery, Kind.LOST, hop, "no record of a handover", **where)


_HOP_OF: Final = {TAP: Hop.ARCHIVE, LEDGER: Hop.ROUTER, HANDOVERS: Hop.INBOX_CONSUMER}


def of_unclear_row(unclear: Unclear) -> Finding:
    """Return the finding about a row that a newer version may have written."""
    row = unclear.row
    return Finding(
        date=row.date,
        kind=str(Kind.NOT_UNDERSTOOD),
        hop=str(_HOP_OF[row.archive]),
        source=row.source,
        id=row.id,
        route=unclear.route if row.archive == LEDGER else None,
        destination=unclear.route if row.archive == HANDOVERS else None,
        archive_file=row.file,
        detail=row.reason,
    )


def about(delivery: Delivery, kind: Kind, hop: Hop, detail: str | None, **others: Any) -> Finding:
    """Return a finding about a delivery, in which `others` stand for what its rows say."""
    event, first = delivery.event, delivery.event.first
    said = delivery.found[0].row if delivery.found else None
    known = first or (event.ledger or event.handovers)[0]
    at_ms = first.accepted_at_ms if first else delivery.out[0].entered_at_ms if delivery.out else None
    members = {
        "device": event.client_id,
        "epoch": first and first.epoch,
        "sequence": first and first.sequence,
        "archive_file": said.file if said else first and first.file,
        "at_ms": at_ms,
        **others,
    }
    return Finding(
        date=delivery.date,
        kind=str(kind),
        hop=str(hop),
        source=known.source,
        id=known.id,
        type=event.type,
        route=delivery.route,
        destination=delivery.destination,
        contract_version=delivery.contract_version,
        detail=detail,
        **members,
    )


def _or_unknown(member: object) -> object:
    return "?" if member is None else member
