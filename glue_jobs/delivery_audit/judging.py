"""Event groups judged one by one and summed, and what the ledger says as a whole. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.reasons import Outcome
from eventplane.sender import PLANE
from glue_jobs.common.hours import Hour, hour_of
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, Usage
from glue_jobs.delivery_audit.event_group import (
    HOUR_MS,
    BadRow,
    EventGroup,
    Judgement,
    LedgerRow,
    NotInTap,
    ReplayRow,
    Rules,
)
from glue_jobs.delivery_audit.findings import Finding, worst_first
from glue_jobs.delivery_audit.holes import LedgerHours, hour_at
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.ordering import (
    OrderedDelivery,
    ordered_deliveries,
    overtaken,
    reordered,
)
from glue_jobs.delivery_audit.rows import event_groups
from glue_jobs.delivery_audit.window import LAST_MS

MAX_FINDINGS: Final = 1_000
"""Most findings of events that are kept in the driver; all of them are in the table."""

Key = tuple[int, int]
"""The key of an event group (`rows.KEY`)."""

Row = Finding | ReplayRow | BadRow | NotInTap
"""What is found row by row, without a bound: a day without a tap has millions of `NotInTap`."""


@dataclass(slots=True)
class Judged:
    """What the groups of some rows come to, without the rows that were found, which may be very many.

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
        self.bad_files |= other.bad_files
        self.note_times(other.accepted_ms or (), other.first_decided_ms)

    def taken(self) -> Iterator[Row]:
        """Take the rows out of the judgement, and count them."""
        judgement = self.judgement
        if judgement.findings:
            self.kinds.update((str(each.kind), str(each.hop)) for each in judgement.findings)
            self._keep(judgement.findings)
        for bad in judgement.quarantine:
            self.bad_files.setdefault((bad.archive, bad.reason), bad.file)
        for found in (judgement.findings, judgement.replay, judgement.quarantine, judgement.not_in_tap):
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
    """How groups are to be judged.

    `letters` are the dead letters that somebody received, `inboxes` those that promise order. `samples` are
    judged each by itself. `overtaken` has the deliveries that are known to have been overtaken, by key, each
    with the inbox and by what time; None: it is found out here. Of the groups `counted` nothing else is
    wanted.
    """

    rules: Rules
    letters: frozenset[str]
    inboxes: frozenset[str]
    samples: frozenset[Key] = frozenset()
    overtaken: Mapping[Key, Mapping[str, int]] | None = None
    counted: frozenset[Key] = frozenset()


def judge_rows(task: Task, rows: Iterable[Any]) -> Iterator[Row | Sample | Judged]:
    """Judge the groups of `rows`, which have the columns `GROUPED` and are sorted by the key.

    Return what is found, the samples, and at the end what all groups come to.
    """
    judged, ordered = Judged(), list[OrderedDelivery]()
    for key, group in event_groups(rows, task.letters):
        if task.overtaken is None:
            ordered += ordered_deliveries(group, task.inboxes)
        elif known := task.overtaken.get(key):
            judged.judgement.findings += (
                reordered(each, known[each.stream[0] or ""])
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


def _judge(group: EventGroup, rules: Rules, into: Judged) -> None:
    judge(group, rules, into.judgement)
    note(into, group)


def note(judged: Judged, group: EventGroup) -> None:
    """Widen the times of `judged` by those of a group."""
    accepted = (*(each.accepted_at_ms for each in group.tap), *(each.accepted_at_ms for each in group.items))
    decided = dict[str, int]()
    for row in group.ledger:
        if None not in row[:4]:
            known = decided.get(row.contract_version, row.decided_at_ms)
            decided[row.contract_version] = min(known, row.decided_at_ms)
    judged.note_times(accepted, decided)


def usages(rows: Iterable[LedgerRow]) -> list[Usage]:
    """Return by which contract versions routers decided, and in which intervals of time."""
    first_ms: dict[tuple[str, int, bool], int] = {}
    for row in rows:
        if None not in row[:4] and 0 <= row.decided_at_ms <= LAST_MS:
            key = row.contract_version, row.decided_at_ms // INTERVAL_MS, row.is_by_contract_in_force
            first_ms[key] = min(first_ms.get(key, row.decided_at_ms), row.decided_at_ms)
    return [
        Usage(version, interval, at_ms, is_in_force)
        for (version, interval, is_in_force), at_ms in first_ms.items()
    ]


def letters_of(rows: Iterable[LedgerRow]) -> frozenset[str]:
    """Return the ids of the dead letters that a router wrote and somebody received.

    Devices and services can write a letter about any event, and so hide a loss. What a router refused, a
    router wrote the letter of.
    """
    return frozenset(
        row.id
        for row in rows
        if row.type == DEAD_LETTER_TYPE and row.sender == PLANE and row.outcome == Outcome.DELIVERED
    )


def ledger_hours(
    rows: Iterable[LedgerRow], uplinks: Collection[str], webhooks: Collection[str]
) -> LedgerHours:
    """Return in which hours the ledger has events of devices, and deliveries into `webhooks`."""
    entered, delivered = set[int](), set[str]()
    for row in rows:
        if row.entered_by in uplinks and None not in row[:4] and 0 <= row.entered_at_ms <= LAST_MS:
            entered.add(row.entered_at_ms // HOUR_MS)
        if row.outcome == Outcome.DELIVERED and row.destination in webhooks:
            delivered.add(row.file.rpartition("/")[0])
    folders = (hour_of(f"{each}/") for each in delivered)
    return LedgerHours(frozenset(map(hour_at, entered)), frozenset(hour for hour in folders if hour))


def unreadable_hours(rows: Iterable[BadRow]) -> Iterator[tuple[str, Hour]]:
    """The archives and hours of lines that cannot be read and name no event."""
    for row in rows:
        if (row.source is None or row.id is None) and (hour := hour_of(row.file)):
            yield row.archive, hour
