"""The judgement of one identity: what its records prove of each event and route, and what contradicts what.

Pure Python: the rows are tuples (`event_group`), the rules the core's (`rules`). Each event of the identity
is put in order first (`event`), then judged route by route, and what is worth knowing becomes findings
(`delivery`) and counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from eventplane.account import Fate, accounts
from eventplane.contract import Place
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.envelope import sender_in_frame
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.names import SENDER_SERVICE
from eventplane.reasons import REPLAY, Outcome
from glue_jobs.delivery_audit.delivery import (
    Consumption,
    RouteEnd,
    about,
    by_readers,
    deliveries,
    facts,
    findings,
    is_other_client,
    listed,
    of_unclear_row,
)
from glue_jobs.delivery_audit.event import Event, Unclear, sorted_out
from glue_jobs.delivery_audit.event_group import (
    EVERY_ROUTE,
    EXPECTED,
    HOUR_MS,
    NO_ROUTE,
    AccountCount,
    DeadLetterCount,
    EventGroup,
    HandoverRow,
    HourCount,
    InboxCount,
    Judgement,
    LatencyKey,
    LedgerRow,
    NotInTap,
    RefusedItem,
    ReplayRow,
    RouteCount,
    RowCount,
    Ruling,
    TapRow,
)
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind, Leg
from glue_jobs.delivery_audit.rules import RECORD_MS, AuditRules, Rules, date_of

_WITHOUT_RECORD: Final = frozenset({Ruling.UNRECORDED, Ruling.NOT_UNDERSTOOD, Ruling.PENDING})
_EXPECTED: Final = frozenset(EXPECTED)
_BY_HOUR: Final = frozenset({Ruling.LOST, Ruling.PENDING, Ruling.UNRECORDED})
_UP, _THROUGH, _ALL, _LAST = map(
    str, (Leg.DEVICE_TO_CLOUD, Leg.CLOUD_TO_INBOX, Leg.DEVICE_TO_INBOX, Leg.INBOX_TO_CONSUMER)
)


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
    copies, ledger, handovers, unclear = sorted_out(group, rules)
    for archive, rows in ((TAP, copies), (LEDGER, ledger), (HANDOVERS, handovers)):
        if count := sum(row.within for row in rows):
            into.counts[RowCount(archive)] += count
    _set_aside((each for each in unclear if each.within), into)
    if group.items or any(not row.id for row in ledger):
        _judge_items(group.items, [row for row in ledger if not row.id], rules, into)
    events = _by_sender(copies, ledger, handovers)
    others = _join_mismatched(events) if len(events) > 1 else {}
    senders = sorted(events)
    for sender in senders:
        event = events[sender]
        if unclear:
            event.unclear = [each for each in unclear if each.row.sender in (None, sender)]
        event.settle(rules, group.dead_letters)
        if event.is_elsewhere:
            continue
        if group.given_up:
            known = event.first or (event.ledger or event.handovers)[0]
            event.given_up = group.given_up.get(letter_id(sender, known.source, known.id), ())
        shown = _judge_event(event, rules, into)
        if len(senders) > 1:
            into.findings.append(about(shown, Kind.TWO_SENDERS, ", ".join(senders), Hop.DEVICE_CLOUD))
        if sender in others:
            names = f"{sender} in the tap, {others[sender]} in the ledger"
            into.findings.append(about(shown, Kind.SENDER_MISMATCH, names, Hop.ARCHIVE))


def _set_aside(unclear: Iterable[Unclear], into: Judgement) -> None:
    for each in unclear:
        into.quarantine.append(each.row)
        into.counts[RowCount(each.row.archive, each.row.reason)] += 1
        if each.kind is not None:
            into.findings.append(of_unclear_row(each))


def _judge_event(event: Event, rules: AuditRules, into: Judgement) -> RouteEnd:
    """Judge one event; return the delivery by which findings that are of no route name it."""
    judged = list(deliveries(event, rules))
    for delivery in judged:
        _count(delivery, rules, into)
        for found in findings(delivery, rules):
            into.findings.append(found)
            if found.kind == Kind.LATE and event.first is not None:
                hour = event.first.accepted_at_ms // HOUR_MS
                into.counts[HourCount("late", event.first.client_id, hour)] += 1
        _follow_up(delivery, into)
    fates: dict[str, Fate] = {}
    if told := [fact for delivery in judged for fact in facts(delivery)]:
        date = judged[0].date
        letters = dict(by_readers(judged, told, rules)) if event.given_up else {}
        for each in accounts((), [*told, *letters]):
            fates[each.inbox] = each.fate
            into.counts[AccountCount(date, each.inbox, str(each.fate))] += 1
            if each.fate is Fate.GIVEN_UP and (row := letters.get(each)):
                at = judged[0]._replace(route=None, destination=each.inbox)
                where = {"archive_file": row.file, "at_ms": each.at_ms}
                detail = f"{each.why}, by {each.by}"
                into.findings.append(about(at, Kind.DEAD_LETTERED, detail, Hop.INBOX_CONSUMER, **where))
    if rules.is_listed:
        into.deliveries += (listed(each, fates) for each in judged if each.verdict is not None)
    for detail in _alterations(event, rules):
        into.findings.append(about(judged[0], Kind.CONTENT_MISMATCH, detail, Hop.ARCHIVE))
    if event.handovers:
        _judge_unknown_handovers(judged, rules, into)
    return judged[0]


def _alterations(event: Event, rules: AuditRules) -> Iterator[str]:
    """Yield what shows that the tap or the ledger has another event than what entered."""
    if other := event.other_digests:
        yield f"the ledger has another digest of the event than the tap: {', '.join(other)}"
    if any(each.is_redacted and not rules.may_be_redacted(each.file) for each in event.copies):
        # Else any text could be put in the place of another, with the digest of that.
        yield "the tap has the event redacted, and no erasure changed its object"


def _by_sender(
    copies: Iterable[TapRow], ledger: Iterable[LedgerRow], handovers: Iterable[HandoverRow]
) -> dict[str, Event]:
    """Return the events of the identity: each sender has its own."""
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


def _follow_up(delivery: RouteEnd, into: Judgement) -> None:
    """Note what has to be sent again, and what the tap does not have."""
    event, first, route = delivery.event, delivery.event.first, delivery.route
    if route is None:
        return
    to = route, delivery.destination
    if first is None and delivery.verdict is Ruling.UNEXPLAINED:
        row, entered_at_ms = delivery.found[0].row, min(row.entered_at_ms for row in event.ledger)
        named = row.client_id, event.sender, row.source, row.id, row.type
        into.not_in_tap.append(
            NotInTap(*named, *to, row.contract_version, entered_at_ms, row.file, row.digest)
        )
    if first is not None and delivery.verdict is Ruling.LOST and route != NO_ROUTE:
        named = event.sender, first.source, first.id, first.type, first.client_id
        version, file = delivery.contract_version, first.file
        into.replay.append(ReplayRow(delivery.date, *named, *to, version, first.accepted_at_ms, file))
        into.counts[RouteCount("to_replay", delivery.date, *to)] += 1


def _judge_unknown_handovers(judged: Sequence[RouteEnd], rules: AuditRules, into: Judgement) -> None:
    """Judge handovers of what the ledger never put into the inbox.

    A handover proves a delivery that was due and has no record, so it needs no other.
    """
    event = judged[0].event
    known = {each.row.destination for each in event.decisions if each.row.outcome == Outcome.DELIVERED}
    known |= {each.destination for each in judged if each.verdict in _WITHOUT_RECORD}
    for end in event.handovers:
        if end.channel in known or rules.is_open(end.entered_at_ms):
            continue
        # The ledger's record was written about when the event came into the inbox.
        hole = rules.hole(LEDGER, end.entered_at_ms - RECORD_MS, wait_ms=RECORD_MS)
        if hole is not None:
            into.counts[hole] += 1
        elif rules.window.first is None and not event.unclear:
            # What came into an inbox the day before is in the ledger of that day.
            at = judged[0]._replace(route=None, destination=end.channel)
            where = {"archive_file": end.file, "at_ms": end.entered_at_ms}
            never = "the ledger never put it into the inbox"
            into.findings.append(about(at, Kind.FORGED, never, Hop.INBOX_CONSUMER, **where))


def _judge_items(
    items: Sequence[RefusedItem], rows: Collection[LedgerRow], rules: AuditRules, into: Judgement
) -> None:
    """Judge the refused items of one client, reason and time, with the ledger's `rows` about such items."""
    places = {(each.place, each.digest) for each in items}
    recorded = _recorded(rows)
    missing = max(len(places) - recorded, 0)
    reason = items[0].reason if items else min((row.reason or "" for row in rows), default="")
    made = str(Place.CLOUD), reason or None
    counts = into.counts
    counts[RowCount(TAP)] += len(places)
    counts[DeadLetterCount("count", *made)] += recorded
    if not items:
        return
    accepted_at_ms = items[0].accepted_at_ms
    known: dict[str, Any] = {
        "date": date_of(accepted_at_ms),
        "hop": str(Hop.ROUTER),
        "device": items[0].client_id,
        "archive_file": min(each.file for each in items),
        "at_ms": accepted_at_ms,
    }
    dead = Finding(kind=str(Kind.DEAD_LETTERED), detail=reason, **known)
    into.findings += [dead] * (len(places) - missing)
    if not missing:
        return
    counts[DeadLetterCount("missing", *made)] += missing
    if rules.is_open(accepted_at_ms):
        counts[DeadLetterCount("pending", *made)] += missing
    elif (hole := rules.hole(LEDGER, accepted_at_ms)) is not None:
        counts[DeadLetterCount("unrecorded", *made)] += missing
        counts[hole] += missing
    else:
        lost = Finding(kind=str(Kind.LOST), detail=f"no record of an item refused as {reason}", **known)
        into.findings += [lost] * missing


def _recorded(rows: Collection[LedgerRow]) -> int:
    """Return how many dead letters of items there are.

    A message that came again was recorded again, all its items in each attempt: the largest attempt counts.
    """
    attempts: defaultdict[str | None, Counter[int | None]] = defaultdict(Counter)
    for row in rows:
        if row.outcome == Outcome.DEAD_LETTERED:
            attempts[row.message_id][row.attempt] += 1
    return sum(max(each.values()) for each in attempts.values())


def _count(delivery: RouteEnd, rules: AuditRules, into: Judgement) -> None:
    if delivery.verdict is not None:
        _count_verdict(delivery, delivery.verdict, into)
    if delivery.is_first_row:
        _count_event(delivery, rules, into)
    if delivery.event.is_dead_lettered:
        _count_dead_letters(delivery, into)
    if delivery.out and delivery.destination is not None:
        _count_put(delivery, delivery.destination, into)
    if delivery.end is not None and delivery.destination is not None:
        _count_last_hop(delivery.end, delivery.date, delivery.destination, into)


def _count_verdict(delivery: RouteEnd, verdict: Ruling, into: Judgement) -> None:
    counts, where = into.counts, (delivery.date, delivery.route, delivery.destination)
    counts[RouteCount(str(verdict), *where)] += 1
    if delivery.hole is not None:
        counts[delivery.hole] += 1
    if (first := delivery.event.first) is not None:
        if verdict in _EXPECTED and delivery.route != NO_ROUTE:
            counts[RouteCount("expected", *where)] += 1
        if verdict in _BY_HOUR:
            counts[HourCount(str(verdict), first.client_id, first.accepted_at_ms // HOUR_MS)] += 1


def _count_event(delivery: RouteEnd, rules: AuditRules, into: Judgement) -> None:
    """Count the event itself, on one of its routes."""
    counts, where = into.counts, (delivery.date, delivery.route, delivery.destination)
    event, first = delivery.event, delivery.event.first
    if first is None:
        if event.ledger and not event.from_device(rules):
            counts[RouteCount("cloud_events", *where)] += 1
        return
    counts[RouteCount("events", *where)] += 1
    if (again := len(event.copies) - event.payloads) > 0:
        counts[RouteCount("tap_copies", *where)] += again
        counts[HourCount("tap_copies", first.client_id, first.accepted_at_ms // HOUR_MS)] += again
    if first.type == DEAD_LETTER_TYPE:
        counts[DeadLetterCount("count", str(Place.DEVICE), first.dead_letter_reason or None)] += 1


def _count_dead_letters(delivery: RouteEnd, into: Judgement) -> None:
    """Count the dead letters about the event that the ledger has, one a route."""
    for route in {delivery.route, EVERY_ROUTE} if delivery.is_first_row else {delivery.route}:
        reasons = [
            each.row.reason or ""
            for each in delivery.event.decisions
            if each.route == route and each.row.outcome == Outcome.DEAD_LETTERED
        ]
        if reasons:
            into.counts[DeadLetterCount("count", str(Place.CLOUD), min(reasons) or None)] += 1


def _count_put(delivery: RouteEnd, inbox: str, into: Judgement) -> None:
    """Count what was put into the inbox."""
    counts, event, date = into.counts, delivery.event, delivery.date
    if copies := delivery.copies:
        counts[InboxCount("delivered_total", date, inbox)] += copies
        if copies > event.payloads:
            counts[RouteCount("duplicated", date, delivery.route, inbox)] += copies - event.payloads
        _time(delivery, into)
    if event.was_replayed and any(row.reason == REPLAY for row in delivery.out):
        counts[RouteCount("replayed", date, delivery.route, inbox)] += 1
    if delivery.opens_inbox:
        counts[InboxCount("delivered_unique", date, inbox)] += 1
        if delivery.end is None and event.first is not None and event.first.expires_at_ms is not None:
            counts[InboxCount("may_expire", date, inbox)] += 1


def _count_last_hop(last: Consumption, date: str, inbox: str, into: Judgement) -> None:
    into.counts[InboxCount(str(last.verdict), date, inbox)] += 1
    if (again := last.handed_over - max(last.put, 1)) > 0:
        into.counts[InboxCount("duplicated", date, inbox)] += again
    if last.hole is not None:
        into.counts[last.hole] += 1


def _time(delivery: RouteEnd, into: Judgement) -> None:
    """Note how long the first delivery of the event took, over each hop."""
    event, first, out = delivery.event, delivery.event.first, delivery.out[0]
    if event.contested and out in event.contested:
        return
    on = delivery.found[0].row.priority or event.ledger[0].priority, delivery.route or ""
    latencies = into.latencies
    latencies[LatencyKey(_THROUGH, *on, out.decided_at_ms - out.entered_at_ms)] += 1
    if first is not None and first.recorded_at_ms is not None:
        latencies[LatencyKey(_UP, *on, first.accepted_at_ms - first.recorded_at_ms)] += 1
        latencies[LatencyKey(_ALL, *on, out.decided_at_ms - first.recorded_at_ms)] += 1
    if delivery.end is not None and (end := delivery.end.end) is not None:
        latencies[LatencyKey(_LAST, *on, end.decided_at_ms - end.entered_at_ms)] += 1
