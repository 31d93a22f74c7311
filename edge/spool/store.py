"""The spool: SQLite, one writer. What a commit took is on the disk when it returns.

A commit takes many received events and many ended deliveries at once (WAL, `synchronous=FULL`); nothing is
acknowledged before. Each destination has its own pending deliveries, ordered by priority rank and then
sequence. An event goes away once no destination waits for it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from edge.errors import SpoolCorruptError
from edge.life_clock import LifeClock, Uptime, system_uptime
from edge.spool.discards import add_discards, close_discards, read_discards
from edge.spool.failures import named_errors
from edge.spool.file import PAGE_BYTES, connect, only_writer, prepare, transaction
from edge.spool.lanes import Lanes
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Arrival,
    Birth,
    Delivery,
    Discard,
    DiscardTally,
    Statement,
    Waiting,
)
from edge.spool.ring import add_keys, read_keys
from edge.spool.schema import DELETE_DELIVERED, READ

READ_CHARACTERS = 512 * 1024
"""A read stops once it holds this much text, so that memory stays bounded whatever the events' sizes."""

CAPACITY_BYTES = 256 * 1024 * 1024
"""What is stored at most unless told otherwise: a day without a network at 5 events a second."""


class Spool:
    """The store at `path`, created when it is not there. Opening takes the same time whatever is in it.

    Raises `SpoolError` from every method when the disk or the file fails.
    """

    epoch: str
    next_sequence: int
    birth: Birth
    life_ms: int
    used_bytes: int
    _lanes: Lanes

    def __init__(
        self,
        path: Path,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        now_life: Callable[[], Uptime] = system_uptime,
    ) -> None:
        self.path = path
        self.capacity_bytes = capacity_bytes
        self._closing = contextlib.ExitStack()
        with named_errors(path, "cannot be opened"), contextlib.ExitStack() as undo:
            path.parent.mkdir(parents=True, exist_ok=True)
            undo.enter_context(only_writer(path))
            self._db = undo.enter_context(contextlib.closing(connect(path)))
            prepare(path, self._db, LifeClock(0, None, now_life))
            self._load(now_life)
            self._closing = undo.pop_all()

    def commit(
        self,
        arrivals: Sequence[Arrival],
        done: Iterable[Delivery] = (),
        discarded: Iterable[Discard] = (),
        *,
        life_ms: int,
        close_statements: bool = False,
        close_discards: bool = False,
    ) -> None:
        """Store `arrivals` (numbered on from `next_sequence`), end deliveries, all or nothing, for good.

        What is closed is what `statements` and `discards` told before this commit; what it stores and
        discards itself counts for the next report.
        """
        done, discarded = list(done), list(discarded)
        try:
            with named_errors(self.path, "cannot commit"), transaction(self._db):
                if close_statements:
                    self._lanes.close_statements()
                if close_discards:
                    self._close_discards()
                self._insert(arrivals, life_ms)
                self._end(done, discarded)
                self._lanes.write()
                self._write_device(arrivals, life_ms)
        except BaseException:
            self._lanes.forget()
            raise
        self._lanes.keep()
        if arrivals:
            self.next_sequence = arrivals[-1].sequence + 1
        self._measure()

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[Waiting]:
        """Up to `limit` pending deliveries of one destination and rank, in order, behind sequence `after`.

        At least one when there is one; fewer than `limit` also when they hold `READ_CHARACTERS`.
        """
        lane = self._lanes.get(destination, rank)
        found: list[Waiting] = []
        characters = 0
        if lane is None:
            return found
        with named_errors(self.path, "cannot be read"):
            for sequence, text, expires_ms, stored_ms in self._db.execute(READ, (lane.number, after, limit)):
                if text is None:
                    raise SpoolCorruptError(self.path, f"event {sequence} is missing")
                found.append(Waiting(Delivery(destination, rank, sequence), text, expires_ms, stored_ms))
                characters += len(text)
                if characters >= READ_CHARACTERS:
                    break
        return found

    def newest(self, destination: str, rank: int) -> int:
        """The highest sequence ever pending for a destination and rank, else `BEFORE_EVERYTHING`."""
        lane = self._lanes.get(destination, rank)
        return lane.newest if lane else BEFORE_EVERYTHING

    def pending(self, destination: str, rank: int) -> int:
        """How many deliveries wait, without a disk access."""
        lane = self._lanes.get(destination, rank)
        return lane.pending if lane else 0

    def oldest_stored_ms(self, destination: str, rank: int) -> int | None:
        """When the delivery that comes next was stored, None when none waits."""
        if not self.pending(destination, rank):
            return None
        oldest = self.read(destination, rank, BEFORE_EVERYTHING, 1)
        return oldest[0].stored_ms if oldest else None

    def destinations(self) -> list[str]:
        """Every destination that ever had a delivery."""
        return list(dict.fromkeys(lane.destination for lane in self._lanes))

    def backlog(self) -> dict[str, int]:
        """Pending deliveries by destination."""
        counts = dict.fromkeys(self.destinations(), 0)
        for lane in self._lanes:
            counts[lane.destination] += lane.pending
        return counts

    def statements(self) -> list[Statement]:
        """What was stored since the last closing, by destination; those without anything are left out."""
        return self._lanes.statements()

    def discards(self) -> list[DiscardTally]:
        """What was discarded since the last closing; a very long list comes in parts, a closing each."""
        with named_errors(self.path, "cannot be read"):
            return read_discards(self._db)

    def recent_keys(self, count: int) -> list[bytes]:
        """The keys of the last `count` events, or as many as are kept, oldest first."""
        with named_errors(self.path, "cannot be read"):
            return read_keys(self._db, self.next_sequence, count)

    @property
    def pressure(self) -> float:
        """How full it is: 1.0 and more means that nothing but deliveries' ends should be committed."""
        return self.used_bytes / self.capacity_bytes

    def close(self) -> None:
        """Close the file; another process may open it then."""
        with named_errors(self.path, "cannot be closed"):
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, now_life: Callable[[], Uptime]) -> None:
        self.epoch, self.next_sequence, life_ms, boot, uptime_ms, birth = self._db.execute(
            "SELECT * FROM device"
        ).fetchone()
        self.birth = Birth(*json.loads(birth)) if birth else Birth("resumed")
        self.life = LifeClock(life_ms, Uptime(boot, uptime_ms), now_life)
        self.life_ms = self.life()
        self._lanes = Lanes(self._db)
        self._measure()

    def _insert(self, arrivals: Sequence[Arrival], life_ms: int) -> None:
        if not arrivals:
            return
        deliveries: list[tuple[int, int, int | None]] = []
        for each in arrivals:
            for destination, expires_ms in each.destinations.items():
                lane = self._lanes.draft(destination, each.rank)
                lane.stored(each.sequence, each.key)
                deliveries.append((lane.number, each.sequence, expires_ms))
        self._db.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
            (
                (each.sequence, each.rank, life_ms, "\n".join(each.destinations), each.json)
                for each in arrivals
            ),
        )
        self._db.executemany("INSERT INTO delivery VALUES (?, ?, ?)", deliveries)
        add_keys(self._db, arrivals[0].sequence, [each.key for each in arrivals])

    def _end(self, done: Sequence[Delivery], discarded: Sequence[Discard]) -> None:
        """Forget deliveries; one that is not there has ended already, and counts for nothing."""
        ended = [each for each in done if self._delete(each)]
        ended_discards = [each for each in discarded if self._delete(each.delivery)]
        add_discards(self._db, ended_discards)
        ended += (each.delivery for each in ended_discards)
        self._db.executemany(DELETE_DELIVERED, ((each.sequence,) for each in ended))

    def _delete(self, delivery: Delivery) -> bool:
        if self._lanes.get(delivery.destination, delivery.rank) is None:
            return False
        lane = self._lanes.draft(delivery.destination, delivery.rank)
        cursor = self._db.execute(
            "DELETE FROM delivery WHERE lane = ? AND sequence = ?", (lane.number, delivery.sequence)
        )
        lane.pending -= cursor.rowcount
        return cursor.rowcount == 1

    def _close_discards(self) -> None:
        close_discards(self._db)

    def _write_device(self, arrivals: Sequence[Arrival], life_ms: int) -> None:
        """The birth has been reported with the first arrivals: from then on the spool is a resumed one."""
        next_sequence = arrivals[-1].sequence + 1 if arrivals else self.next_sequence
        self._db.execute(
            "UPDATE device SET next_sequence = ?, life_ms = MAX(life_ms, ?), boot = ?, uptime_ms = ?,"
            " birth = CASE WHEN ? THEN '' ELSE birth END",
            (next_sequence, life_ms, *self.life.uptime(), bool(arrivals)),
        )

    def _measure(self) -> None:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        self.used_bytes = (pages - free) * PAGE_BYTES
