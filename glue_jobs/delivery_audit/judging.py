"""Event groups judged one by one and summed, their order, and the ledger as a whole. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from eventplane.account import by_letter
from eventplane.contract import Ordering, Transport
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import sender_in_frame
from eventplane.ledger import SENT_BEFORE
from eventplane.names import PLANE, SENDER_SERVICE
from eventplane.reasons import Outcome
from glue_jobs.common.hours import Hour, hour_of
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, ContractHistory, Usage
from glue_jobs.delivery_audit.coverage import LedgerHours
from glue_jobs.delivery_audit.event import decided_between, tap_fault, tap_order
from glue_jobs.delivery_audit.event_group import (
    HOUR_MS,
    BadRow,
    DeliveryRow,
    EventGroup,
    Judgement,
    LedgerRow,
    NotInTap,
    ReplayRow,
)
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind, worst_first
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.rows import MAX_ROWS, event_groups
from glue_jobs.delivery_audit.rules import LAST_MS, Rules, Window, date_of, is_time

MAX_FINDINGS: Final = 1_000
"""Most findings of events that are kept in the driver; all of them are in the table."""

Key = tuple[int, int]
"""The key of an event group (`rows.KEY`)."""

Row = Finding | ReplayRow | BadRow | NotInTap | DeliveryRow
"""What is found row by row, without a bound: a day without a tap has millions of `NotInTap`."""

KINDS: Final[Mapping[type[Any], str]] = {
    Finding: "finding",
    ReplayRow: "replay",
    BadRow: "bad",
    NotInTap: "not_in_tap",
    DeliveryRow: "delivery",
}
"""The words for what is found."""


class OrderedDelivery(NamedTuple):
    """The first delivery of an event into an inbox that promises order, times in Unix milliseconds.

    Within a `stream` the deliveries should be in the order of `sent`: the device's number, or when it
    entered. `finding` is what is found if it was overtaken, without the detail.
    """

    stream: tuple[str | bool | None, ...]
    sent: int
    delivered_at_ms: int
    finding: Finding


def ordered_inboxes(history: ContractHistory) -> frozenset[str]:
    """Return the addresses of the inboxes that promise the order of each source."""
    return frozenset(
        each.address
        for each in history.inboxes
        # A standard queue delivers in any order; there the reader sorts, behind what the archive sees.
        if each.ordering is Ordering.SOURCE and each.transport is not Transport.SQS
    )


def ordered_deliveries(group: EventGroup, inboxes: Collection[str]) -> Iterator[OrderedDelivery]:
    """Return the first deliveries of a group into `inboxes`; none of an identity that several senders use.

    Of that `two_senders` is found, and a forged copy overtakes no event. Nor does an event whose place in the
    order is unknown: its number cannot be read, it was decided by a wrong clock or on another day, or it has
    no number and tap and ledger differ about its time. A group with rows beyond those that it holds is not
    judged.
    """
    if group.beyond:
        return
    sent: defaultdict[str, list[LedgerRow]] = defaultdict(list)
    for row in group.ledger:
        inbox = row.destination
        if inbox is not None and inbox in inboxes and is_sent(row):
            sent[inbox].append(row)
    if not sent or len(_senders(group)) > 1 or any(each.unread for each in group.tap):
        return
    tap = min(group.tap, key=tap_order, default=None)
    sequence = min((each.sequence for each in group.tap if each.sequence is not None), default=None)
    entered_ms = min(each.entered_at_ms for each in group.ledger if None not in each[1:2])
    began_ms = min((each.accepted_at_ms for each in group.tap), default=entered_ms)
    if sequence is None and began_ms != entered_ms:
        return
    is_numbered = sequence is not None
    for destination, rows in sent.items():
        if not all(map(has_order, rows)):
            continue
        row = min(rows, key=lambda each: each.decided_at_ms)
        client_id, epoch = (tap.client_id, tap.epoch) if tap else (row.client_id, None)
        at_ms = tap.accepted_at_ms if tap else row.entered_at_ms
        finding = Finding(
            date=date_of(at_ms),
            kind=Kind.REORDERED,
            hop=Hop.ROUTER,
            device=client_id,
            epoch=epoch,
            sequence=sequence,
            source=row.source,
            id=row.id,
            type=tap.type if tap else row.type,
            route=row.route,
            destination=destination,
            contract_version=row.contract_version,
            archive_file=row.file,
            at_ms=at_ms,
        )
        yield OrderedDelivery(
            (destination, client_id, epoch, (tap.partition if tap else None) or row.source, is_numbered),
            began_ms if sequence is None else sequence,
            row.decided_at_ms,
            finding,
        )


def _senders(group: EventGroup) -> set[str | None]:
    in_tap = (sender_in_frame(each.client_id, {SENDER_SERVICE: each.service or ""}) for each in group.tap)
    named = {*(each.sender for each in group.ledger), *(each.sender for each in group.handovers)}
    return {*map(str, in_tap), *named}


def is_sent(row: LedgerRow) -> bool:
    """Return whether the row is a delivery, and can be judged."""
    return row.has_times and row.outcome == Outcome.DELIVERED and row.reason != SENT_BEFORE


def has_order(row: LedgerRow) -> bool:
    """Return whether the row's time of decision can be compared with those of other deliveries."""
    has_times = is_time(row.decided_at_ms) and is_time(row.entered_at_ms)
    return row.within and has_times and not decided_between(row).skew_ms


def overtaken(deliveries: Iterable[OrderedDelivery]) -> Iterator[Finding]:
    """Return a finding for each delivery after one of its stream that was sent later.

    Within one millisecond the archive knows no order, so none is broken there. One event that comes late is
    one finding, however many came before it.
    """
    streams: defaultdict[tuple[str | bool | None, ...], list[OrderedDelivery]] = defaultdict(list)
    for each in deliveries:
        streams[each.stream].append(each)
    for stream in streams.values():
        # From the last to the first: so the least that came later is known from one to the next.
        stream.sort(key=lambda each: -each.sent)
        least_ms = LAST_MS
        for _, together in groupby(stream, key=lambda each: each.sent):
            same = list(together)
            yield from (reordered(each, least_ms) for each in same if least_ms < each.delivered_at_ms)
            least_ms = min(least_ms, *(each.delivered_at_ms for each in same))


def reordered(delivery: OrderedDelivery, overtaken_at_ms: int) -> Finding:
    """Return the finding about a delivery after one that was sent later."""
    by_ms = delivery.delivered_at_ms - overtaken_at_ms
    return delivery.finding._replace(detail=f"{by_ms} ms behind one that was sent later")


@dataclass(slots=True)
class Judged:
    """The sum of the groups of some rows, without the rows that were found, which may be very many.

    `kinds` counts all findings by kind and hop, of which `worst` has some; `bad_files` names an object for
    each archive and reason of bad rows. `accepted_ms` are the first and the last acceptance of an event or
    item, `first_decided_ms` the first decision by each contract version, Unix milliseconds.
    """

    judgement: Judgement = field(default_factory=Judgement)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    worst: list[Finding] = field(default_factory=list)
    bad_files: dict[tuple[str, str], str] = field(default_factory=dict)
    accepted_ms: tuple[int, int] | None = None
    first_decided_ms: dict[str, int] = field(default_factory=dict)

    def add(self, other: Judged) -> None:
        """Add what another set of rows comes to."""
        self.judgement.add(other.judgement)
        self.kinds += other.kinds
        self._keep(other.worst)
        self._name_files(other.bad_files.items())
        self.note_times(other.accepted_ms or (), other.first_decided_ms)

    def taken(self) -> Iterator[Row]:
        """Take the rows out of the judgement, and count them."""
        judgement = self.judgement
        if judgement.findings:
            self.kinds.update((str(each.kind), str(each.hop)) for each in judgement.findings)
            self._keep(judgement.findings)
        self._name_files(((bad.archive, bad.reason), bad.file) for bad in judgement.quarantine)
        rows = judgement.quarantine, judgement.not_in_tap, judgement.deliveries
        for found in (judgement.findings, judgement.replay, *rows):
            yield from found
            found.clear()

    def note_times(self, accepted_ms: Iterable[int], first_decided_ms: Mapping[str, int]) -> None:
        """Widen the times so that they hold these."""
        times = (*accepted_ms, *(self.accepted_ms or ()))
        if times:
            self.accepted_ms = min(times), max(times)
        for version, at_ms in first_decided_ms.items():
            known = self.first_decided_ms.get(version, at_ms)
            self.first_decided_ms[version] = min(known, at_ms)

    def _name_files(self, files: Iterable[tuple[tuple[str, str], str]]) -> None:
        """Keep the first of the names, so that it is the same in whichever order the groups are judged."""
        for key, file in files:
            self.bad_files[key] = min(file, self.bad_files.get(key, file))

    def _keep(self, findings: Iterable[Finding]) -> None:
        self.worst += findings
        if len(self.worst) > 2 * MAX_FINDINGS:
            self.worst = nsmallest(MAX_FINDINGS, self.worst, key=worst_first)


class Sample(NamedTuple):
    """A group that was judged by itself."""

    key: Key
    judged: Judged


@dataclass(frozen=True, slots=True)
class Task:
    """A task: groups to judge, and how.

    `dead_letters` are the ids of those that somebody received, `given_up` those of readers
    (`letters_of_readers`), `inboxes` those that promise order. `samples` are judged each by itself.
    `overtaken` has the deliveries that are known to have been overtaken, by key, each with the inbox and by
    what time; None: it is found out here. Of the groups `counted` nothing else is wanted.
    """

    rules: Rules
    dead_letters: frozenset[str]
    inboxes: frozenset[str]
    samples: frozenset[Key] = frozenset()
    overtaken: Mapping[Key, Mapping[str, int]] | None = None
    counted: frozenset[Key] = frozenset()
    given_up: Mapping[str, Sequence[LedgerRow]] = field(default_factory=dict)


def judge_rows(task: Task, rows: Iterable[Any]) -> Iterator[Row | Sample | Judged]:
    """Judge the groups of `rows`, which have the columns `GROUPED` and are sorted by the key.

    Return what is found, the samples, and at the end what all groups come to.
    """
    judged, ordered = Judged(), list[OrderedDelivery]()
    for key, group in event_groups(rows, task.dead_letters, task.given_up):
        if not is_within(group, task.rules.window):
            continue
        if task.overtaken is None:
            ordered += ordered_deliveries(group, task.inboxes)
        elif known := task.overtaken.get(key):
            judged.judgement.findings += (
                reordered(each, known[str(each.stream[0])])
                for each in ordered_deliveries(group, task.inboxes)
                if each.stream[0] in known
            )
        if key in task.samples:
            sample = Judged()
            _judge(group, task.rules, sample)
            yield Sample(key, sample)
        elif key not in task.counted:
            _judge(group, task.rules, judged)
        yield from judged.taken()
    judged.judgement.findings += overtaken(ordered)
    yield from judged.taken()
    yield judged


def is_within(group: EventGroup, window: Window) -> bool:
    """Return whether something of a group belongs to the window."""
    if window.first is None or group.items or any(window.holds(each.date) for each in group.bad):
        return True
    return any(row.within for rows in (group.tap, group.ledger, group.handovers) for row in rows)


def _judge(group: EventGroup, rules: Rules, into: Judged) -> None:
    if group.beyond:
        into.judgement.findings.append(_not_judged(group))
    else:
        judge(group, rules, into.judgement)
    note(into, group)


def _not_judged(group: EventGroup) -> Finding:
    """Return the finding about a group that does not hold all of its rows: the others could acquit a hop."""
    first: Any = next(chain(group.tap, group.ledger, group.handovers, group.items, group.bad))
    members = first._asdict()
    at_ms = members.get("accepted_at_ms", members.get("entered_at_ms"))
    return Finding(
        date=date_of(at_ms) if is_time(at_ms) else members.get("date"),
        kind=Kind.NOT_UNDERSTOOD,
        hop=Hop.ARCHIVE,
        device=members.get("client_id"),
        source=members.get("source"),
        id=members.get("id"),
        type=members.get("type"),
        archive_file=members["file"],
        at_ms=at_ms,
        detail=f"too many records of one event to be judged: {group.beyond:,} beyond {MAX_ROWS:,} of a kind",
    )


def note(judged: Judged, group: EventGroup) -> None:
    """Widen the times of `judged` by those of a group."""
    tap = (each for each in group.tap if each.within and tap_fault(each) is None)
    accepted = (*(each.accepted_at_ms for each in tap), *(each.accepted_at_ms for each in group.items))
    decided = dict[str, int]()
    for row in group.ledger:
        if row.is_whole and row.within:
            known = decided.get(row.contract_version, row.decided_at_ms)
            decided[row.contract_version] = min(known, row.decided_at_ms)
    judged.note_times(accepted, decided)


def usages(rows: Iterable[LedgerRow]) -> list[Usage]:
    """Return by which contract versions routers decided, and in which intervals of time."""
    first_ms: dict[tuple[str, int, bool], int] = {}
    for row in rows:
        if row.is_whole and row.within and is_time(row.decided_at_ms):
            # A wrong clock does not show when it was in force.
            is_in_force = row.is_by_contract_in_force and not decided_between(row).skew_ms
            key = row.contract_version, row.decided_at_ms // INTERVAL_MS, is_in_force
            first_ms[key] = min(first_ms.get(key, row.decided_at_ms), row.decided_at_ms)
    return [
        Usage(version, interval, at_ms, is_in_force)
        for (version, interval, is_in_force), at_ms in first_ms.items()
    ]


def received_dead_letters(rows: Iterable[LedgerRow]) -> frozenset[str]:
    """Return the ids of the dead letters that a router wrote and somebody received.

    Those of devices and services do not count: they can be about any event, and so hide a loss.
    """
    return frozenset(
        row.id
        for row in rows
        if row.type == DEAD_LETTER_TYPE and row.sender == PLANE and row.outcome == Outcome.DELIVERED
    )


def letters_of_readers(rows: Iterable[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Return the last row of each dead letter that a service in the cloud wrote and somebody received.

    By the id of an event's letter: those of a redriven event, and of one for many devices, go on after a dot.
    """
    last: dict[tuple[str, str | None], LedgerRow] = {}
    for row in rows:
        if row.has_times and by_letter(row._asdict()):
            last[row.id, row.sender] = max(last.get((row.id, row.sender), row), row, key=_decided)
    found: defaultdict[str, list[LedgerRow]] = defaultdict(list)
    for row in last.values():
        found[row.id.partition(".")[0]].append(row)
    return dict(found)


def _decided(row: LedgerRow) -> tuple[int, str]:
    return row.decided_at_ms, row.file


def ledger_hours(
    rows: Iterable[LedgerRow], uplinks: Collection[str], webhooks: Collection[str]
) -> LedgerHours:
    """Return in which hours the ledger has events of devices, and deliveries into `webhooks`."""
    entered, delivered = set[int](), set[str]()
    for row in rows:
        if not row.within:
            continue
        if row.entered_by in uplinks and row.is_whole and is_time(row.entered_at_ms):
            entered.add(row.entered_at_ms // HOUR_MS)
        if row.outcome == Outcome.DELIVERED and row.destination in webhooks:
            delivered.add(row.file.rpartition("/")[0])
    folders = (hour_of(f"{each}/") for each in delivered)
    return LedgerHours(frozenset(map(Hour.at, entered)), frozenset(hour for hour in folders if hour))


def unreadable_hours(names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Hour]]:
    """Return the archives and hours of objects with these names."""
    for archive, name in names:
        if hour := hour_of(name):
            yield archive, hour
