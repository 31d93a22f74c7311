"""Expected against recorded: each event on each route, with one verdict, and the findings about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventplane.account import (
    EVERY_INBOX,
    OF_READER,
    OF_ROUTER,
    Account,
    Fate,
    by_letter,
    by_router,
    inbox_of,
    reader_of,
)
from eventplane.guarantee import BY_CHANNEL, DROP_REASONS
from eventplane.ledger import HANDOVERS, LEDGER, SENT_BEFORE, TAP, Basis
from eventplane.limits import MAX_HOPS
from eventplane.reader_receipts import SETTLED_BEFORE
from eventplane.reasons import REDRIVE, Outcome, Reason
from eventplane.values import timestamp_of_ms
from glue_jobs.delivery_audit.event import CLOCK_SLACK_MS, Event, LedgerDecision, Unclear, decided_between
from glue_jobs.delivery_audit.event_group import (
    EVERY_ROUTE,
    HOUR_MS,
    NO_ROUTE,
    DeliveryRow,
    HandoverRow,
    HoleCount,
    LedgerRow,
    Ruling,
    TapRow,
)
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.rules import AuditRules

# An event sent twice may fail once: what was delivered is delivered.
_ENDS: Final = {
    str(each): (rank, Ruling(each))
    for rank, each in enumerate((Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED))
}


_PROVEN_BY_HANDOVER: Final = (Ruling.UNRECORDED, Ruling.NOT_UNDERSTOOD)

_ENDED: Final = frozenset({Ruling.EXPIRED, Ruling.DROPPED, Ruling.DEAD_LETTERED})

_HOP_OF: Final = {TAP: Hop.ARCHIVE, LEDGER: Hop.ROUTER, HANDOVERS: Hop.INBOX_CONSUMER}


_FATES: Final = {
    **{Ruling(each): fate for each, fate in OF_ROUTER.items()},
    Ruling.LOST: Fate.LOST,
    Ruling.PENDING: Fate.WAITING,
    Ruling.UNRECORDED: Fate.UNKNOWN,
    Ruling.NOT_UNDERSTOOD: Fate.UNKNOWN,
    Ruling.UNEXPLAINED: Fate.UNKNOWN,
}
"""What a verdict says in the words of the account; of another verdict the decisions do."""

_FATES_AT_THE_END: Final = {
    **{Ruling(each): OF_READER[each] for each in (*_ENDED, Ruling.DELIVERED)},
    Ruling.LOST: Fate.LOST,
}
"""The same of a webhook's inbox. What is not known there is in the inbox."""


class Consumption(NamedTuple):
    """The ends of an event in an inbox whose ends are recorded, into which it was `put` so many times.

    It was there from `put_at_ms` at the earliest, by the clocks that nothing contradicts. `end` is the
    handover that counts, None without one; `handed_over` counts those that the endpoint took. `hole` is where
    the handovers lack it, for `unrecorded`.
    """

    verdict: Ruling
    put: int
    put_at_ms: int
    end: HandoverRow | None
    handed_over: int
    hole: HoleCount | None = None


class RouteEnd(NamedTuple):
    """An event on one `route`, with its `verdict`; both are None for an event that has no route.

    `is_first_row` marks one delivery of each event, which alone has what is not of a route. `found` are the
    decisions about the route, `out` those that put the event into the inbox, each in the order of time.
    `opens_inbox` where no route before it led to the same inbox. `end` is what became of it at the last hop,
    None where that is not seen. `hole` is where the ledger lacks the record, for `unrecorded`.
    """

    event: Event
    date: str
    route: str | None
    destination: str | None
    verdict: Ruling | None
    found: Sequence[LedgerDecision]
    out: Sequence[LedgerRow]
    is_first_row: bool
    opens_inbox: bool
    end: Consumption | None
    hole: HoleCount | None

    @property
    def contract_version(self) -> str:
        """The contract by which it was decided, or had to be."""
        return self.found[0].row.contract_version if self.found else self.event.versions[0]

    @property
    def copies(self) -> int:
        """The number of copies of the event written to the inbox on this route."""
        # Of one that was sent early, the contract in force only says that it was right to be.
        return sum(row.reason not in (SENT_BEFORE, REDRIVE) for row in self.out)


def facts(delivery: RouteEnd) -> Iterator[Account]:
    """Return the facts that a delivery gives for the account of its event at the inbox."""
    inbox, end = inbox_of(delivery.destination or EVERY_INBOX, delivery.route), delivery.end
    if end is not None and end.verdict in _FATES_AT_THE_END:
        why = SETTLED_BEFORE if end.end and end.end.reason == SETTLED_BEFORE else ""
        yield Account(inbox, _FATES_AT_THE_END[end.verdict], reader_of(inbox), why)
    elif delivery.verdict in _FATES:
        yield Account(inbox, _FATES[delivery.verdict])
    else:
        fates = (OF_ROUTER.get(each.outcome, Fate.UNKNOWN) for each in delivery.found)
        # A wrong record of another end than a delivery ends nothing.
        is_right = delivery.verdict is Ruling.INTERNAL
        yield from (Account(inbox, each) for each in fates if is_right or each is Fate.IN_INBOX)


def by_readers(
    judged: Sequence[RouteEnd], told: Iterable[Account], rules: AuditRules
) -> Iterator[tuple[Account, LedgerRow]]:
    """Yield what its readers gave up of an event that lay in their inboxes, and how it came there, with rows.

    A reader's word is taken for its own inbox only.
    """
    inboxes = {each.inbox for each in told if each.fate is Fate.IN_INBOX or each.why == SETTLED_BEFORE}
    down = next(iter(rules.down & inboxes), "")
    found = [(by_letter(row._asdict(), down), row) for row in judged[0].event.given_up]
    found += [(by_router(row._asdict()), row) for each in judged for row in each.out]
    yield from ((account, row) for account, row in found if account and account.inbox in inboxes)


def listed(delivery: RouteEnd, fates: Mapping[str, Fate]) -> DeliveryRow:
    """Return the row about a delivery whose event had these `fates` at its inboxes."""
    event, end = delivery.event, delivery.end
    first, known = event.first, event.first or (event.ledger or event.handovers)[0]
    put = delivery.out[0] if delivery.out else delivery.found[0].row if delivery.found else None
    taken = end.end if end else None
    files = {TAP: first, LEDGER: put, HANDOVERS: taken}
    inbox = inbox_of(delivery.destination or EVERY_INBOX, delivery.route)
    return DeliveryRow(
        date=delivery.date,
        sender=event.sender,
        source=known.source,
        id=known.id,
        type=event.type,
        device=event.client_id,
        epoch=first and first.epoch,
        sequence=first and first.sequence,
        route=delivery.route,
        destination=delivery.destination,
        contract_version=delivery.contract_version,
        hop=Hop.INBOX_CONSUMER if end else Hop.ROUTER,
        verdict=str(end.verdict if end else delivery.verdict),
        fate=fates.get(inbox, fates.get(EVERY_INBOX)),
        said_at_ms=first and first.said_at_ms,
        stored_at_ms=first and first.recorded_at_ms,
        accepted_at_ms=first and first.accepted_at_ms,
        routed_at_ms=put and put.decided_at_ms,
        rung_at_ms=None,
        taken_at_ms=taken and taken.decided_at_ms,
        rests_on=" ".join(name for name, row in files.items() if row),
        file=(taken or put or known).file,
    )


def deliveries(event: Event, rules: AuditRules) -> Iterator[RouteEnd]:
    """Judge an event on each route that it should have taken or did take; at least one delivery."""
    routes, date, unknown = () if event.is_displaced else _routes(event, rules), event.date, None
    if event.first is None and event.decisions:
        unknown = _unknown_to_the_tap(event, rules)
    if not routes:
        yield RouteEnd(event, date, None, None, None, (), (), True, False, None, None)
    reached: set[str | None] = set()
    for at, route in enumerate(routes):
        found = [each for each in event.decisions if each.route in (route, EVERY_ROUTE)]
        out = [each.row for each in found if each.outcome == Outcome.DELIVERED]
        first = out[0] if out else found[0].row if found else None
        destination = (first and first.destination) or rules.destinations.get(route)
        opens_inbox = bool(out) and destination not in reached
        shown = not out and bool(event.handovers) and _shown_by_handovers(event, route, destination)
        verdict: Ruling | None
        hole = None
        if unknown is not None:
            verdict = unknown
        elif event.first is None:
            verdict = Ruling.NOT_UNDERSTOOD
        else:
            verdict = _verdict(event, event.first, route, found, rules)
            if verdict is None:
                verdict, hole = _without_record(event, event.first, route, found, shown, rules)
        if shown := shown and destination not in reached and verdict in _PROVEN_BY_HANDOVER:
            reached.add(destination)
        reached.update(row.destination for row in out)
        end = None
        if destination is not None and destination in rules.patience_ms and (opens_inbox or shown):
            put = [
                each.row
                for each in event.decisions
                if each.outcome == Outcome.DELIVERED and each.row.destination == destination
            ]
            if _is_seen(event, destination, put, rules):
                end = _consumption(event, destination, put, rules)
        yield RouteEnd(event, date, route, destination, verdict, found, out, at == 0, opens_inbox, end, hole)


def _routes(event: Event, rules: AuditRules) -> Sequence[str]:
    if len(event.decisions) == 1 and event.decisions[0].route in event.expected:
        return event.expected
    recorded = sorted({each.route for each in event.decisions} - {EVERY_ROUTE, *event.expected})
    routes = (*event.expected, *recorded)
    if not routes and event.from_device(rules):
        # Refused as a whole, and unknown to the tap: that has to be accounted for as well.
        return (EVERY_ROUTE,)
    return routes


def _unknown_to_the_tap(event: Event, rules: AuditRules) -> Ruling:
    """Return the verdict on all routes of an event that the ledger has and the tap has not."""
    if not event.from_device(rules):
        return Ruling.INTERNAL
    if any(each.row.archive == TAP for each in event.unclear):
        return Ruling.NOT_UNDERSTOOD
    # The tap's own record may be on its way too.
    is_young = rules.is_open(min(row.entered_at_ms for row in event.ledger))
    return Ruling.PENDING if is_young else Ruling.UNEXPLAINED


def _verdict(
    event: Event, first: TapRow, route: str, found: Sequence[LedgerDecision], rules: AuditRules
) -> Ruling | None:
    """Return what the decisions about a route prove; None where they prove nothing."""
    if route not in event.expected:
        return Ruling.MISROUTED
    ranked: tuple[int, Ruling] | None = None
    is_unknown = False
    for each in found:
        if each.outcome == Outcome.DELIVERED and route not in event.forwarded:
            return Ruling.MISROUTED
        end = _ENDS.get(each.outcome)
        if end is not None and (ranked is None or end < ranked):
            holds = _holds(event, first, each, rules)
            ranked = end if holds else ranked
            is_unknown |= holds is None
    if ranked is not None:
        return ranked[1]
    for each in found:
        if each.outcome == Outcome.NO_INTEREST and route in event.unwanted:
            return Ruling.NO_INTEREST
        if each.outcome == Outcome.UNROUTED and route == NO_ROUTE:
            return Ruling.UNROUTED
    return Ruling.NOT_UNDERSTOOD if is_unknown else None


def _holds(event: Event, first: TapRow, decision: LedgerDecision, rules: AuditRules) -> bool | None:
    """Return whether tap and contract bear out the end that a router recorded: it is not taken on trust.

    None where no clock says when it was decided.
    """
    row, reason = decision.row, decision.row.reason
    if decision.outcome == Outcome.EXPIRED and not (expired := _had_expired(event, first, row, rules)):
        return expired
    if reason == Reason.HOP_LIMIT:
        return (first.hops or 0) >= MAX_HOPS
    if reason == Reason.RESERVED_ATTRIBUTE:
        return first.names_sender
    if reason == Reason.TOO_LARGE:
        return first.is_too_large
    return reason not in DROP_REASONS or event.was_best_effort(row, rules)


def _had_expired(event: Event, first: TapRow, row: LedgerRow, rules: AuditRules) -> bool | None:
    ends = [] if first.expires_at_ms is None else [first.expires_at_ms]
    if row.reason == BY_CHANNEL and row.route is not None:
        worth_ms = rules.by_version[row.contract_version].worth_ms(row.route)
        ends += [] if worth_ms is None else [first.accepted_at_ms + worth_ms]
    if not ends:
        return False
    if row in event.contested:
        return None
    decided = decided_between(row)
    # A router whose clock is wrong may have expired what had time left.
    if (had := decided.earliest_ms >= min(ends)) == (decided.latest_ms >= min(ends)):
        return had
    return None


def _shown_by_handovers(event: Event, route: str, inbox: str | None) -> bool:
    """Return whether a consumer had an event of which the ledger does not say that it went into the inbox."""
    return any(
        each.channel == inbox
        and (
            each.route == route
            or not any(
                other.outcome == Outcome.DELIVERED and other.row.destination == inbox
                for other in event.decisions
            )
        )
        for each in event.handovers
    )


def _without_record(
    event: Event,
    first: TapRow,
    route: str,
    found: Sequence[LedgerDecision],
    was_there: bool,
    rules: AuditRules,
) -> tuple[Ruling, HoleCount | None]:
    """Return the verdict on a route without proof, and where the ledger lacks the record."""
    accepted_at_ms = first.accepted_at_ms
    if any(each.row.archive == LEDGER and each.route in (None, route) for each in event.unclear):
        return Ruling.NOT_UNDERSTOOD, None
    if not found and rules.is_open(accepted_at_ms):
        return Ruling.PENDING, None
    hole = rules.hole(LEDGER, accepted_at_ms)
    if was_there:
        return Ruling.UNRECORDED, hole or HoleCount(LEDGER, accepted_at_ms // HOUR_MS)
    return (Ruling.LOST, None) if found or hole is None else (Ruling.UNRECORDED, hole)


def _is_seen(event: Event, inbox: str, put: Sequence[LedgerRow], rules: AuditRules) -> bool:
    """Return whether a record shows what the reader of `inbox` did with an event, or should show it by now.

    Until then what lies in the inbox of a program that leaves receipts is in the inbox.
    """
    if inbox not in rules.readers or any(each.channel == inbox for each in event.handovers):
        return True
    asked = [
        row
        for row in put
        if rules.by_version[row.contract_version].records_end(inbox, row.source or "", row.id or "")
        and not event.was_best_effort(row, rules)
    ]
    last_ms = max(
        (decided_between(row, is_contested=row in event.contested).latest_ms for row in asked), default=0
    )
    return bool(asked) and not rules.is_open(last_ms + rules.patience_ms[inbox])


def _consumption(event: Event, inbox: str, put: Sequence[LedgerRow], rules: AuditRules) -> Consumption:
    """Judge the last hop of an event that the rows `put` into `inbox`.

    Without rows a handover has shown that it was there.
    """
    ends = [each for each in event.handovers if each.channel == inbox]
    decided = [decided_between(row, is_contested=row in event.contested) for row in put]
    put_at_ms = min([each.earliest_ms for each in decided] or [each.entered_at_ms for each in ends])
    if ends and inbox in rules.readers:
        # A program tells both times by the queue's clock, which the router's own may contradict.
        put_at_ms = min(put_at_ms, ends[0].entered_at_ms)
    handed_over = sum(each.outcome == Outcome.DELIVERED and each.reason != SETTLED_BEFORE for each in ends)
    if ends:
        end = ends[0]
        verdict = Ruling(end.outcome) if _is_shown(event, end, put, rules) else Ruling.LOST
        return Consumption(verdict, len(put), put_at_ms, end, handed_over)
    verdict, hole = Ruling.LOST, None
    patience_ms = rules.patience_ms[inbox]
    if any(each.row.archive == HANDOVERS and each.route in (None, inbox) for each in event.unclear):
        verdict = Ruling.NOT_UNDERSTOOD
    elif rules.is_open(put_at_ms + patience_ms):
        verdict = Ruling.PENDING
    elif (hole := rules.hole(HANDOVERS, put_at_ms, patience_ms)) is not None:
        verdict = Ruling.UNRECORDED
    return Consumption(verdict, len(put), put_at_ms, None, handed_over, hole)


def _is_shown(event: Event, end: HandoverRow, put: Sequence[LedgerRow], rules: AuditRules) -> bool:
    """Return whether an event of the tap had expired, or could be dropped, as the handover says."""
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


_Found = Iterator[tuple[Kind, str | None]]
"""Kinds of findings on one hop, with their details."""


def findings(delivery: RouteEnd, rules: AuditRules) -> Iterator[Finding]:
    """Return what is to be known of one delivery, hop by hop."""
    event = delivery.event
    if delivery.is_first_row and event.first is not None:
        up = _on_device_cloud(event, event.first, rules)
        yield from (about(delivery, *each, Hop.DEVICE_CLOUD) for each in up)
    if delivery.is_first_row:
        yield from _in_archive(delivery)
    yield from (about(delivery, *each, Hop.ROUTER) for each in _at_router(delivery, rules))
    if (last := delivery.end) is not None:
        where: dict[str, Any] = {"at_ms": last.put_at_ms}
        if last.end is not None:
            where["archive_file"] = last.end.file
        yield from (about(delivery, *each, Hop.INBOX_CONSUMER, **where) for each in _on_last_hop(last))


def _on_device_cloud(event: Event, first: TapRow, rules: AuditRules) -> _Found:
    copies, payloads = len(event.copies), event.payloads
    if copies > payloads:
        yield Kind.DUPLICATE, f"{copies} copies in the tap"
    if (different := event.payloads_around) > 1:
        yield Kind.REUSED_ID, f"{different} different payloads"
    if not event.contested and rules.watermark.is_late(first.accepted_at_ms, first.archived_at_ms):
        yield Kind.LATE, f"archived {first.archived_at_ms - first.accepted_at_ms} ms after acceptance"


def _in_archive(delivery: RouteEnd) -> Iterator[Finding]:
    """Return what the records of the event leave unknown, and where those of one frame contradict each other.

    A row of the ledger finds its frame by the time of acceptance; one with another time has none.
    """
    event = delivery.event
    for unread in sorted({each.unread for each in event.copies if each.unread}):
        yield about(delivery, Kind.NOT_UNDERSTOOD, unread, Hop.ARCHIVE)
    accepted = sorted({copy.accepted_at_ms for copy in (*event.copies, *event.others)})
    in_tap = ", ".join(map(timestamp_of_ms, accepted))
    for entered_at_ms, file in sorted({(row.entered_at_ms, row.file) for row in event.contested}):
        times = f"accepted {in_tap} by the tap, entered {timestamp_of_ms(entered_at_ms)} by the ledger"
        yield about(delivery, Kind.CONTRADICTION, times, Hop.ARCHIVE, archive_file=file)


def _at_router(delivery: RouteEnd, rules: AuditRules) -> _Found:
    if delivery.is_first_row:
        yield from _of_event(delivery, rules)
    if delivery.found:
        yield from _of_decisions(delivery, rules)
    yield from _of_verdict(delivery)


def _of_event(delivery: RouteEnd, rules: AuditRules) -> _Found:
    """Return what is known of the event as a whole, not of a route."""
    event, first = delivery.event, delivery.event.first
    if first is not None and event.ledger:
        sent = {each.type for each in event.copies}
        if other := sorted({row.type for row in event.ledger if row.type is not None} - sent):
            yield Kind.TYPE_MISMATCH, f"{first.type} in the tap, {', '.join(other)} in the ledger"
    if first is None and event.was_put_back:
        yield Kind.PUT_BACK, f"by {event.ledger[0].put_back_by}; the ledger alone has it"
    if event.early and _is_unconfirmed(event, rules):
        yield Kind.UNCONFIRMED, f"by contract {delivery.contract_version}"
    for client in sorted({row.client_id or "" for row in event.ledger if is_other_client(row)}):
        sender = event.ledger[0].sender
        yield Kind.SENDER_MISMATCH, f"the ledger names the sender {sender} and the client {client}"


def is_other_client(row: LedgerRow) -> bool:
    """Return whether the row's sender is on another device than its client."""
    sender, client = row.sender, row.client_id
    return sender is not None and client is not None and "/" in sender and not sender.startswith(f"{client}/")


def _is_unconfirmed(event: Event, rules: AuditRules) -> bool:
    """Return whether a router decided before it saw the contract in force, and none decided by that one.

    An earlier decision about the same message counts: a router that is killed after its deliveries leaves the
    message to the next one, which may have seen less.
    """
    last = max(event.early, key=lambda row: row.decided_at_ms)
    confirmed = any(
        row.basis != Basis.BUNDLED
        and (row.decided_at_ms >= last.decided_at_ms or row.message_id == last.message_id)
        for row in event.ledger
    )
    return not confirmed and not rules.is_open(last.decided_at_ms)


def _of_decisions(delivery: RouteEnd, rules: AuditRules) -> _Found:
    first, contested = delivery.event.first, delivery.event.contested
    if delivery.out:
        put = delivery.out[0]
        # Each copy that a device sends is routed, rightly.
        came = max(len(delivery.event.copies), 1)
        if any(row.reason == REDRIVE for row in delivery.out):
            yield Kind.PUT_BACK, "into the inbox once more, by an operator"
        if len(delivery.out) > came and (copies := delivery.copies) > came:
            yield Kind.DUPLICATE, f"{copies} copies in the inbox, of {came} that came"
        late_ms = decided_between(put).earliest_ms - put.entered_at_ms
        if not (contested and put in contested) and rules.watermark.is_late(0, late_ms):
            yield Kind.LATE, f"{late_ms} ms after it entered"
        if any(rules.is_forbidden(row) for row in delivery.out):
            yield Kind.NOT_ALLOWED, f"{delivery.event.sender} to {_or_unknown(delivery.destination)}"
    known = list[tuple[LedgerRow, int, int]]()
    for row in (each.row for each in delivery.found):
        # The hash of a row takes longer than all else here.
        is_contested = bool(contested) and row in contested
        before_ms = first.accepted_at_ms - row.decided_at_ms if first and not is_contested else 0
        known.append((row, decided_between(row, is_contested=is_contested).skew_ms, before_ms))
    judged = (row for row, skew_ms, _ in known if not skew_ms)
    if any(rules.is_stale(row) or delivery.event.is_by_other(row, rules) for row in judged):
        yield Kind.STALE_CONTRACT, f"by contract {delivery.contract_version}"
    if (most_ms := max((before_ms for *_, before_ms in known), default=0)) > CLOCK_SLACK_MS:
        yield Kind.CAUSALITY, f"decided {most_ms} ms before it was accepted"
    # What was decided before its acceptance is not explained by a clock.
    wrong_ms = [skew_ms for _, skew_ms, before_ms in known if skew_ms and before_ms <= CLOCK_SLACK_MS]
    if wrong_ms:
        side = "ahead" if max(wrong_ms) > 0 else "behind"
        yield Kind.CLOCK_SKEW, f"the router's clock is at least {abs(max(wrong_ms))} ms {side}"


def _of_verdict(delivery: RouteEnd) -> _Found:
    verdict = delivery.verdict
    if verdict is None or verdict is Ruling.DELIVERED:
        return
    decision = delivery.found[0] if delivery.found else None
    reason = (decision and decision.row.reason) or "no reason given"
    if verdict in _ENDED:
        yield Kind(verdict), reason
    elif verdict is Ruling.NOT_UNDERSTOOD and decision is not None and not delivery.event.unclear:
        yield Kind.NOT_UNDERSTOOD, f"recorded as {decision.outcome}, {reason}; no clock tells whether rightly"
    elif verdict is Ruling.LOST and decision is None:
        yield Kind.LOST, "no record"
    elif decision is None:
        return
    elif verdict is Ruling.LOST:
        yield Kind.LOST, f"recorded as {decision.outcome}, {reason}; nothing bears it out"
    elif verdict is Ruling.MISROUTED:
        if decision.outcome == Outcome.DELIVERED and not delivery.event.is_routed:
            yield Kind.UNROUTED_DELIVERED, f"to {_or_unknown(delivery.destination)}"
        else:
            yield Kind.MISROUTED, f"recorded as {decision.outcome}"
    elif verdict is Ruling.INTERNAL and decision.outcome in _ENDED:
        yield Kind(decision.outcome), reason


def _on_last_hop(last: Consumption) -> _Found:
    end = last.end
    if end is None:
        if last.verdict is Ruling.LOST:
            yield Kind.LOST, "no record of a handover"
        return
    reason = _or_unknown(end.reason)
    if last.verdict is Ruling.LOST:
        yield Kind.LOST, f"recorded as {end.outcome}, {reason}; nothing bears it out"
    elif last.verdict is Ruling.EXPIRED:
        yield Kind.EXPIRED, end.reason
    elif last.verdict in _ENDED:
        yield Kind(last.verdict), f"{reason}{'' if end.status is None else f', HTTP status {end.status}'}"
    before_ms = last.put_at_ms - end.decided_at_ms
    if last.put and before_ms > CLOCK_SLACK_MS:
        yield Kind.CAUSALITY, f"handed over {before_ms} ms before it was put into the inbox"
    if last.handed_over > (put := max(last.put, 1)):
        yield Kind.DUPLICATE, f"{last.handed_over} handovers of {put} copies"


def of_unclear_row(unclear: Unclear) -> Finding:
    """Return the finding about a row that was not judged, and is not merely invalid."""
    row, is_newer = unclear.row, unclear.kind is Kind.NOT_UNDERSTOOD
    return Finding(
        date=row.date,
        kind=str(unclear.kind),
        hop=str(_HOP_OF[row.archive] if is_newer else Hop.ARCHIVE),
        source=row.source,
        id=row.id,
        route=unclear.route if row.archive == LEDGER else None,
        destination=unclear.route if row.archive == HANDOVERS else None,
        archive_file=row.file,
        detail=row.reason,
    )


def about(delivery: RouteEnd, kind: Kind, detail: str | None, hop: Hop, **others: Any) -> Finding:
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
