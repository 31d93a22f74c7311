"""Reads what can be read of a damaged spool into a new one, batch by batch, around the holes.

Every batch says by itself where it goes. The queues say what of it is still pending; where they cannot be
read, all of it is sent again: better twice than never.

A page may also hold what it held some commits ago, every row of it intact. So counters are believed only
where the totals of the newest commit agree with what was read; otherwise any event that was pending may be
lost unless it was copied, and the report says so.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from edge.spool import BEFORE_EVERYTHING, DeviceState, SpoolOrigin, StoredEvent
from edge.spool.database import DamagedRowError, DeviceRow, TableTotals, connect_to_read, transaction
from edge.spool.deliveries import (
    Deliveries,
    EventBatch,
    PendingBatch,
    PendingQueue,
    PendingQueues,
)
from edge.spool.files import CommitNote
from edge.spool.states import ALL_STATES, DeviceStates, checked_state
from edge.spool.tables import MOST_RANGES, add_discard_range, checked_discard, merged
from eventplane.device_reports import KEY_BYTES

SHIFT = 1 << 40
"""What salvaged sequences are lowered by: more than any sequence of the 12 digits that events carry."""

_NEXT = "SELECT * FROM batch WHERE last > ? ORDER BY last LIMIT 1"
_STEPS = 62
_Row = TypeVar("_Row")
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite's own message quotes damaged bytes, which Python cannot decode."""
_DAMAGE = (*_UNREADABLE, DamagedRowError, TypeError, ValueError, AttributeError)
"""A damaged row can hold anything."""


def salvage(
    damaged: Path, new: sqlite3.Connection, note: CommitNote | None, more: Callable[[], bool]
) -> Salvage:
    """Copy until nothing is left, `more` returns False or `new` has no room; `note` is the last commit's."""
    try:
        old = connect_to_read(damaged)
    except sqlite3.Error:
        old = sqlite3.connect(":memory:")
    with contextlib.closing(old):
        copy = Salvage(old, new, note, more)
        copy.run()
        copy.count_losses()
        return copy


class Salvage:
    """Copies from the database `old` to `new`.

    What came out: `events` in the new spool; at most `lost` others (None: unknown) are lost, whose numbers
    are within `lost_ranges`. `notes` report what else is lost, and `origin` is how the damaged spool itself
    came to be, as far as that was not reported.
    """

    def __init__(
        self,
        old: sqlite3.Connection,
        new: sqlite3.Connection,
        note: CommitNote | None,
        more: Callable[[], bool],
    ) -> None:
        self.events = 0
        self.epoch = ""
        self.uptime_ms = 0
        self.lost: int | None = None
        self.lost_ranges: Sequence[tuple[int, int]] = ()
        self.notes: list[str] = []
        self.origin = SpoolOrigin("resumed")
        self._old = old
        self._new = new
        self._more = more
        self._device = device = self._read_device()
        # One of another epoch says nothing about this one.
        self._note = note if device is None or (note and note.epoch == device.epoch) else None
        # Whether the row of the device is that of the last commit.
        self._is_newest = bool(device and self._note and device.commits >= self._note.commits)
        self._totals = TableTotals.unpack(device.totals) if device else TableTotals()
        self._queues, self._has_all_queues = self._read_queues()
        # The last batch that was copied, how many were and the sum of their checksums, the numbers in them
        # that need no report, and whether these are all.
        self._last = BEFORE_EVERYTHING
        self._read = 0, 0
        self._copied = array("q")
        self._has_all_texts = True

    def run(self) -> None:
        """Copy events, then what the cloud desires, which it sends again to a new epoch anyhow."""
        try:
            self._copy_events()
            with self._step() as totals:
                self._copy_small_tables(totals)
        except (sqlite3.Error, DamagedRowError) as error:
            self.notes.append(f"salvage ended early: {error}")

    def count_losses(self) -> None:
        """Compare what was copied with the counters of the old spool and with the note of its last commit."""
        device, note = self._device, self._note
        last = device or note
        if last is None:
            return
        self.epoch = last.epoch
        if device:
            self.origin = device.read_origin()
        if note is None:
            return  # nobody knows how many commits there were
        if device and not self._is_newest:
            self.notes.append(f"{note.commits - device.commits} commits lost")
        self.lost, ranges = self._lost(note)
        if device is None and note.unreported:
            self.lost = None if note.unreported < 0 else self.lost + note.unreported
            ranges.append((1 - SHIFT, -1))
        self.lost_ranges = merged(sorted(each for each in ranges if each[0] <= each[1]))
        if len(self.lost_ranges) > MOST_RANGES:
            self.lost_ranges = [(self.lost_ranges[0][0], self.lost_ranges[-1][1])]

    def _lost(self, note: CommitNote) -> tuple[int, list[tuple[int, int]]]:
        """Return how many events are lost at most, and the numbers that they are among."""
        device = self._device
        is_whole = self._has_all_queues and self._has_all_texts and self._totals.total("batch") == self._read
        if device and is_whole:
            # All is there, as it was at the commit of this device row.
            lost = max(0, note.next_sequence - device.next_sequence)
            return lost, [(device.next_sequence, note.next_sequence - 1)]
        newest = device if device and self._is_newest else note
        ranges = self._not_copied(note.first, newest.next_sequence)
        return min(newest.pending, sum(last - first + 1 for first, last in ranges)), ranges

    def _not_copied(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of numbers from `first` to below `end` that were not copied."""
        ranges, start = [], first
        for sequence in sorted(self._copied):
            if start < sequence:
                ranges.append((start, min(sequence, end) - 1))
            start = max(start, sequence + 1)
        ranges.append((start, end - 1))
        return [each for each in ranges if each[0] <= each[1]]

    def _read_device(self) -> DeviceRow | None:
        with contextlib.suppress(*_DAMAGE):
            device = DeviceRow.read(self._old)
            TableTotals.unpack(device.totals)
            self.uptime_ms = device.uptime_ms
            return device
        return None

    def _read_queues(self) -> tuple[dict[tuple[str, int], PendingQueue], bool]:
        """Return the queues whose rows are intact, and whether these are all, as they were last."""
        found, codes = {}, 0
        with contextlib.suppress(*_UNREADABLE):
            for row in self._old.execute("SELECT * FROM queue"):
                with contextlib.suppress(DamagedRowError, TypeError):
                    queue = PendingQueue.read(row)
                    found[queue.destination, queue.rank] = queue
                    codes += row[-1]
        return found, self._device is not None and self._totals.total("queue") == (len(found), codes)

    @contextlib.contextmanager
    def _step(self) -> Iterator[TableTotals]:
        """Copy rows in a transaction, with the totals of the new spool to change."""
        with transaction(self._new):
            device = DeviceRow.read(self._new)
            totals = TableTotals.unpack(device.totals)
            yield totals
            pending = PendingQueues(self._new).pending()
            device._replace(pending=pending, totals=totals.pack()).write(self._new)

    def _copy_events(self) -> None:
        queues = PendingQueues(self._new)
        deliveries = Deliveries(self._new, queues)
        for row in self._batches():
            if not self._more():
                self.notes.append("salvage ended early: out of time")
                return
            batch = EventBatch(*row)
            try:
                events, copied = self._arrivals(batch)
            except _DAMAGE:
                continue
            self.uptime_ms = max(self.uptime_ms, batch.stored_ms)
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
            self.events += len(events)
            self._last = batch.last
            self._read = self._read[0] + 1, self._read[1] + batch.checksum
            self._copied.extend(copied)

    def _arrivals(self, batch: EventBatch) -> tuple[list[StoredEvent], list[int]]:
        """Return the events of a batch that are pending and intact, and all numbers but of damaged ones.

        Raises `DamagedRowError` when it is no batch.
        """
        texts = dict(batch.read_texts())
        names = batch.destinations.split("\n")
        pending = {name: self._pending_of(name, batch) for name in names}
        found, copied = [], []
        for sequence, text in texts.items():
            destinations = {
                name: waiting.get(sequence)
                for name, (is_known, waiting) in pending.items()
                if not is_known or sequence in waiting
            }
            # Without destinations it was delivered, and kept for the sake of others in its batch.
            if destinations and text is None:
                self._has_all_texts = False
                continue
            copied.append(sequence)
            if text is not None and destinations:
                found.append(StoredEvent(sequence - SHIFT, batch.rank, text, destinations, bytes(KEY_BYTES)))
        return found, copied

    def _pending_of(self, name: str, batch: EventBatch) -> tuple[bool, dict[int, int | None]]:
        """Return whether it is known what of a batch is pending for a destination, and what that is."""
        queue = self._queues.get((name, batch.rank))
        if queue is None:
            return False, {}
        if batch.last <= queue.head:
            return True, {}
        try:
            found = PendingBatch.read(self._old, queue.number, batch.last - 1)
        except _DAMAGE:
            return False, {}
        if found is not None and found.last == batch.last:
            return True, dict(found.waiting)
        # The row is missing: all of it has ended when the chain goes on without it. The end of the chain that
        # a queue names may be from before this batch.
        if found is None:
            return self._is_newest and self._has_all_queues and queue.tail < batch.last, {}
        return found.before < batch.last, {}

    def _copy_small_tables(self, totals: TableTotals) -> None:
        states = DeviceStates(self._new)

        def put_discard(row: tuple[str, str, str, int, int]) -> None:
            add_discard_range(self._new, row[:3], row[3] - SHIFT, row[4] - SHIFT, totals)

        def put_state(state: DeviceState) -> None:
            states.put([state._replace(sequence=state.sequence - SHIFT)], totals)

        self._copy("discard", "SELECT * FROM discard", -1, checked_discard, put_discard, "ranges of discards")
        self._copy("device_state", ALL_STATES, 0, checked_state, put_state, "states")

    def _copy(
        self,
        table: str,
        query: str,
        code: int,
        checked: Callable[[tuple[Any, ...]], _Row],
        put: Callable[[_Row], None],
        what: str,
    ) -> None:
        """Put the intact rows of a small table, whose column `code` has the checksum; note what is lost."""
        count = codes = damaged = 0
        with contextlib.suppress(*_UNREADABLE):
            for row in self._old.execute(query):
                if not self._more():
                    codes = -1  # not all of them
                    break
                count += 1
                codes += row[code] if isinstance(row[code], int) else 0
                try:
                    found = checked(row)
                except (DamagedRowError, UnicodeDecodeError):
                    damaged += 1
                else:
                    put(found)
        note, lost = self._note, damaged
        if note is None:
            self.notes.append(f"an unknown number of {what} lost")
            return
        if not self._is_newest:
            lost = note.discards if table == "discard" else note.states
        elif self._totals.total(table) != (count, codes):
            # Rows of before may be among them.
            lost = self._totals.total(table)[0]
        if lost:
            self.notes.append(f"at most {lost} {what} lost")

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
            if row[0] > self._last:
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
