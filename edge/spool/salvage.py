"""Reads what can be read of a damaged spool into a new one, batch by batch, around the holes.

Every batch says by itself where it goes. The queues say what of it is still pending; where they cannot be
read, all of it is sent again: better twice than never. What is lost is counted by the counters that the spool
kept.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edge.spool.database import DamagedRowError, Device, TableTotals, connect_to_read, transaction
from edge.spool.deliveries import (
    Deliveries,
    EventBatch,
    PendingBatch,
    PendingQueue,
    PendingQueues,
)
from edge.spool.log import CommitNote
from edge.spool.records import BEFORE_EVERYTHING, StoredEvent
from edge.spool.tables import (
    MOST_RANGES,
    DeviceStates,
    add_discard_range,
    merged,
    salvage_discards,
    salvage_states,
)
from eventplane.event_keys import KEY_BYTES

SHIFT = 1 << 40
"""What salvaged sequences are lowered by: more than any sequence of the 12 digits that events carry."""

_NEXT = "SELECT * FROM batch WHERE last > ? ORDER BY last LIMIT 1"
_STEPS = 62
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite's own message quotes damaged bytes, which Python cannot decode."""
_DAMAGE = (*_UNREADABLE, DamagedRowError, TypeError, ValueError, AttributeError)
"""A damaged row can hold anything."""


@dataclass(slots=True)
class Salvage:
    """What came out: `events` in the new spool; at most `lost` others (None: unknown) are lost.

    The numbers of the lost ones are within `lost_ranges`. `notes` report what else is lost.
    """

    events: int = 0
    epoch: str = ""
    uptime_ms: int = 0
    lost: int | None = None
    lost_ranges: Sequence[tuple[int, int]] = ()
    notes: list[str] = field(default_factory=list)


def salvage(
    damaged: Path, new: sqlite3.Connection, note: CommitNote | None, more: Callable[[], bool]
) -> Salvage:
    """Copy until nothing is left, `more` returns False or `new` has no room; `note` is the last commit's."""
    with contextlib.ExitStack() as stack:
        try:
            old = stack.enter_context(contextlib.closing(connect_to_read(damaged)))
        except sqlite3.Error:
            old = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:")))
        copy = _Copy(old, new, more)
        copy.run()
        copy.count_losses(note)
        return copy.result


class _Copy:
    """Copies from the database `old` to `new`."""

    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, more: Callable[[], bool]) -> None:
        self._old = old
        self._new = new
        self._more = more
        self.result = Salvage()
        self._device = self._read_device()
        self._queues = self._read_queues()
        # By queue, how many deliveries were copied that may have been pending or not.
        self._doubtful = Counter[tuple[str, int]]()
        # The batches that were read (by `last`), the sum of their checksums, and their damaged texts.
        self._read = array("q")
        self._sum = 0
        self._damaged: set[int] = set()

    def run(self) -> None:
        """Copy events, then what the cloud desires, which it sends again to a new epoch anyhow."""
        try:
            self._copy_events()
            with self._step() as totals:
                self._copy_discards(totals)
                self._copy_states(totals)
        except sqlite3.Error as error:
            self.result.notes.append(f"salvage ended early: {error}")

    def count_losses(self, note: CommitNote | None) -> None:
        """Compare what was copied with the counters of the old spool and with the note of its last commit."""
        device, result = self._device, self.result
        last = device or note
        if last is None:
            return
        result.epoch = last.epoch
        result.lost, ranges = 0, list[tuple[int, int]]()
        if device and note and note.epoch == device.epoch and note.commits > device.commits:
            ranges.append((device.next_sequence, note.next_sequence - 1))
            result.lost += note.next_sequence - device.next_sequence
            result.notes.append(f"{note.commits - device.commits} commits lost")
        if not self._has_all_batches():
            pending = last.pending
            for each in self._queues.values():
                lost, missing = self._lost_of(each)
                result.lost += lost
                ranges += missing if lost else []
                pending -= each.pending
            if pending > 0:  # in queues whose rows are damaged
                result.lost += pending
                ranges.append((1, last.next_sequence - 1))
        result.lost_ranges = merged(sorted(each for each in ranges if each[0] <= each[1]))
        if len(result.lost_ranges) > MOST_RANGES:
            result.lost_ranges = [(result.lost_ranges[0][0], result.lost_ranges[-1][1])]

    def _has_all_batches(self) -> bool:
        """Return whether every event of the old spool was read."""
        if self._device is None or self._damaged:
            return False
        totals = TableTotals.unpack(self._device.totals)
        return totals.total("batch") == (len(self._read), self._sum)

    def _lost_of(self, queue: PendingQueue) -> tuple[int, list[tuple[int, int]]]:
        """Return how many deliveries of a queue are lost at most, and the numbers that they are among."""
        ranges = merged(sorted(self._missing_numbers(queue)))
        numbers = sum(last - first + 1 for first, last in ranges)
        # Which of the numbers are doubtful ones, which were copied, is not told apart.
        numbers -= self._doubtful[queue.destination, queue.rank]
        return max(0, min(queue.pending, numbers)), ranges

    def _missing_numbers(self, queue: PendingQueue) -> Iterator[tuple[int, int]]:
        """Return ranges of sequences that were pending in a queue, or may have been, and were not copied."""
        # Salvaged events of an earlier recovery have negative sequences.
        lowest = -SHIFT if self._read and self._read[0] < 0 else 0
        before = after = queue.head
        while before < queue.tail:
            try:
                batch = PendingBatch.read(self._old, queue.number, after)
            except DamagedRowError as error:
                if isinstance(error.last, int):
                    after = error.last
                    continue
                batch = None
            except _UNREADABLE:
                batch = None
            if batch is None:
                yield max(before, lowest) + 1, queue.tail
                return
            if batch.before > before:
                yield max(before, lowest) + 1, batch.before
            is_read = self._is_read(batch.last)
            for sequence, _ in batch.waiting:
                if not is_read or sequence in self._damaged:
                    yield sequence, sequence
            before = after = batch.last

    def _is_read(self, last: int) -> bool:
        place = bisect_left(self._read, last)
        return place < len(self._read) and self._read[place] == last

    def _read_device(self) -> Device | None:
        with contextlib.suppress(*_DAMAGE):
            device = Device.read(self._old)
            TableTotals.unpack(device.totals)
            self.result.uptime_ms = device.uptime_ms
            return device
        return None

    def _read_queues(self) -> dict[tuple[str, int], PendingQueue]:
        found = {}
        with contextlib.suppress(*_UNREADABLE):
            for row in self._old.execute("SELECT * FROM queue"):
                with contextlib.suppress(DamagedRowError, TypeError):
                    queue = PendingQueue.read(row)
                    found[queue.destination, queue.rank] = queue
        return found

    @contextlib.contextmanager
    def _step(self) -> Iterator[TableTotals]:
        """Copy rows in a transaction, with the totals of the new spool to change."""
        with transaction(self._new):
            device = Device.read(self._new)
            totals = TableTotals.unpack(device.totals)
            yield totals
            pending = PendingQueues(self._new).pending()
            replace(device, pending=pending, totals=totals.pack()).write(self._new)

    def _copy_events(self) -> None:
        queues = PendingQueues(self._new)
        deliveries = Deliveries(self._new, queues)
        for row in self._batches():
            if not self._more():
                self.result.notes.append("salvage ended early: out of time")
                return
            batch = EventBatch(*row)
            try:
                events = self._arrivals(batch)
            except _DAMAGE:
                continue
            self.result.uptime_ms = max(self.result.uptime_ms, batch.stored_ms)
            try:
                with self._step() as totals:
                    deliveries.add(events, batch.stored_ms, totals)
                    # What the new epoch states begins with its own events.
                    queues.close_manifests()
                    queues.write(totals)
            except sqlite3.IntegrityError:  # events that another batch has as well
                queues.forget()
                continue
            queues.keep()
            self.result.events += len(events)

    def _arrivals(self, batch: EventBatch) -> list[StoredEvent]:
        """Return the events of a batch that are pending. Raises `DamagedRowError` when it is no batch."""
        texts = dict(batch.read_texts())
        self._read.append(batch.last)
        self._sum += batch.checksum
        names = batch.destinations.split("\n")
        pending = {name: self._pending_of(name, batch) for name in names}
        found = []
        for sequence, text in texts.items():
            destinations = {}
            for name, (is_known, waiting) in pending.items():
                if not is_known or sequence in waiting:
                    destinations[name] = waiting.get(sequence)
                    self._doubtful[name, batch.rank] += not is_known and text is not None
            # Without destinations it was delivered, and kept for the sake of others in its batch.
            if destinations and text is None:
                self._damaged.add(sequence)
            elif destinations and text is not None:
                found.append(StoredEvent(sequence - SHIFT, batch.rank, text, destinations, bytes(KEY_BYTES)))
        return found

    def _pending_of(self, name: str, batch: EventBatch) -> tuple[bool, dict[int, int | None]]:
        """Return whether it is known what of a batch is pending for a destination, and what that is."""
        queue = self._queues.get((name, batch.rank))
        if queue is None:
            return False, {}
        try:
            found = PendingBatch.read(self._old, queue.number, batch.last - 1)
        except _DAMAGE:
            return False, {}
        if found is not None and found.last == batch.last:
            return True, dict(found.waiting)
        # The row is missing: all of it has ended when the chain goes on without it.
        before = queue.tail if found is None else found.before
        return batch.last <= queue.head or before < batch.last, {}

    def _copy_discards(self, totals: TableTotals) -> None:
        copied = 0
        with contextlib.suppress(*_UNREADABLE):
            for kind, first, last in salvage_discards(self._old):
                add_discard_range(self._new, kind, first - SHIFT, last - SHIFT, totals)
                copied += 1
        self._note_lost("discard", copied, "ranges of discards")

    def _copy_states(self, totals: TableTotals) -> None:
        copied, states = 0, DeviceStates(self._new)
        with contextlib.suppress(*_UNREADABLE):
            for each in salvage_states(self._old):
                if not self._more():
                    break
                states.put([each._replace(sequence=each.sequence - SHIFT)], totals)
                copied += 1
        self._note_lost("device_state", copied, "states")

    def _note_lost(self, table: str, copied: int, what: str) -> None:
        if self._device:
            lost = TableTotals.unpack(self._device.totals).total(table)[0] - copied
            if lost > 0:
                self.result.notes.append(f"{lost} {what} lost")

    def _batches(self) -> Iterator[tuple[int, int, int, int, str, bytes]]:
        """Read rows in ascending order, so that the new queues are in order."""
        after: int | None = BEFORE_EVERYTHING
        while after is not None:
            try:
                row = self._old.execute(_NEXT, (after,)).fetchone()
            except _UNREADABLE:
                after = self._behind_hole(after)
                continue
            if row is None:
                return
            if not self._read or row[0] > self._read[-1]:
                yield row
            # A damaged number, or pages that have changed places, lead back.
            after = row[0] if row[0] > after else self._behind_hole(after)

    def _behind_hole(self, after: int) -> int | None:
        """Return the nearest number behind `after` that can be read on from, None when there is none."""
        readable = [step for step in range(_STEPS) if self._can_read(after + (1 << step))]
        if not readable:
            return None
        low, high = (1 << readable[0]) // 2, 1 << readable[0]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._can_read(after + middle) else (middle, high)
        return after + high

    def _can_read(self, after: int) -> bool:
        try:
            row = self._old.execute(_NEXT, (after,)).fetchone()
        except _UNREADABLE:
            return False
        return row is not None and row[0] > after
