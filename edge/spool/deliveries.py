"""Events and who still waits for them, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence

from edge.spool.batch import DamagedTextError, grouped, pack_texts, pack_waiting, unpack_texts, unpack_waiting
from edge.spool.lanes import LaneRow
from edge.spool.records import Arrival

_NEXT = "SELECT last, waiting FROM delivery WHERE lane = ? AND last >= ? ORDER BY last LIMIT 1"
_DELETE_DELIVERED = """
DELETE FROM batch WHERE last = ? AND NOT EXISTS (
    SELECT 1 FROM lane CROSS JOIN delivery ON delivery.lane = lane.number
    WHERE lane.rank = batch.rank AND delivery.last = batch.last
)
"""


class Deliveries:
    """The pending deliveries of every lane, in batches that are known by their last sequence."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # The batch read last: who reads a few events at a time reads it many times.
        self._read_last: int | None = None
        self._read: tuple[int, dict[int, str]] = (0, {})

    def add(self, arrivals: Sequence[Arrival], stored_ms: int, lane: Callable[[str, int], LaneRow]) -> None:
        """Store events; `lane` gives the counters of a destination and rank."""
        for batch in grouped(arrivals):
            last, rank, destinations = batch[-1].sequence, batch[0].rank, batch[0].destinations
            self._db.execute(
                "INSERT INTO batch VALUES (?, ?, ?, ?, ?)",
                (last, rank, stored_ms, "\n".join(destinations), pack_texts(batch)),
            )
            for destination in destinations:
                row = lane(destination, rank)
                waiting = [(each.sequence, each.destinations[destination]) for each in batch]
                self._db.execute(
                    "INSERT INTO delivery VALUES (?, ?, ?)", (row.number, last, pack_waiting(waiting, last))
                )
                for each in batch:
                    row.stored(each.sequence, each.key)

    def end(self, lane: LaneRow, sequences: Iterable[int]) -> set[int]:
        """Forget deliveries. Those that were there; the others have ended already."""
        missing = set(sequences)
        ended: set[int] = set()
        while missing:
            row = self._db.execute(_NEXT, (lane.number, min(missing))).fetchone()
            if row is None:
                break
            last, blob = row
            waiting = unpack_waiting(blob, last)
            here = missing.intersection(sequence for sequence, _ in waiting)
            if here:
                self._rewrite(lane, last, [each for each in waiting if each[0] not in here])
            ended |= here
            # Whatever is not above this batch's last has now been looked for.
            missing = {each for each in missing if each > last}
        lane.pending -= len(ended)
        return ended

    def read(self, lane: LaneRow, after: int) -> Iterator[tuple[int, str, int | None, int]]:
        """Sequence, text, expiry and time of storing of what waits behind `after`, in order."""
        # One query a batch: an open cursor would keep the write-ahead log from starting anew.
        while row := self._db.execute(_NEXT, (lane.number, after + 1)).fetchone():
            last, blob = row
            stored_ms, texts = self._read_batch(last)
            for sequence, expires_ms in unpack_waiting(blob, last):
                if sequence > after:
                    if sequence not in texts:
                        raise DamagedTextError(sequence)
                    yield sequence, texts[sequence], expires_ms, stored_ms
            after = last

    def _read_batch(self, last: int) -> tuple[int, dict[int, str]]:
        if self._read_last != last:
            row = self._db.execute("SELECT stored_ms, texts FROM batch WHERE last = ?", (last,)).fetchone()
            if row is None:
                raise DamagedTextError(last)
            self._read, self._read_last = (row[0], unpack_texts(row[1], last)), last
        return self._read

    def _rewrite(self, lane: LaneRow, last: int, waiting: list[tuple[int, int | None]]) -> None:
        if waiting:
            self._db.execute(
                "UPDATE delivery SET waiting = ? WHERE lane = ? AND last = ?",
                (pack_waiting(waiting, last), lane.number, last),
            )
            return
        self._db.execute("DELETE FROM delivery WHERE lane = ? AND last = ?", (lane.number, last))
        self._db.execute(_DELETE_DELIVERED, (last,))
