"""The spool: SQLite, one writer. What a commit took is on the disk when it returns.

A commit takes many received events and many ended deliveries at once (WAL, `synchronous=FULL`); nothing is
acknowledged before. Each destination has its own pending deliveries, ordered by priority rank and then
sequence. An event goes away once no destination waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from edge import durable
from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError
from edge.life_clock import LifeClock, Uptime, system_uptime
from edge.spool.contents import Contents
from edge.spool.discards import read_discards
from edge.spool.failures import damage_of_any_kind, named_errors
from edge.spool.file import PAGE_BYTES, check_header, connect, prepare
from edge.spool.log import misses_commits
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Arrival,
    Delivery,
    Discard,
    DiscardTally,
    Holding,
    Statement,
    Waiting,
)
from edge.spool.recovery import finish_recovery, marker_of, recover
from edge.spool.ring import read_keys
from edge.spool.room import Room, reserve_of, written_bytes

CAPACITY_BYTES = 256 * 1024 * 1024
"""What is stored at most unless told otherwise: a day without a network at 5 events a second."""

CAPACITY_DELIVERIES = 1_000_000
"""How many deliveries wait at most unless told otherwise: more than CAPACITY_BYTES holds of usual events."""


class Spool:
    """The store at `path`, created when it is not there. Opening takes the same time whatever is in it.

    Raises `SpoolError` from every method when the disk or the file fails.
    """

    def __init__(
        self,
        path: Path,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        capacity_deliveries: int = CAPACITY_DELIVERIES,
        now_life: Callable[[], Uptime] = system_uptime,
    ) -> None:
        self.path = path
        self._capacities = capacity_bytes, capacity_deliveries
        self._now_life = now_life
        self._closing = contextlib.ExitStack()
        with named_errors(path, "cannot be opened"), contextlib.ExitStack() as undo:
            path.parent.mkdir(parents=True, exist_ok=True)
            taken = SpoolError(path, "another forwarder writes it", "stop that one first")
            undo.enter_context(durable.only_one(path, taken))
            finish_recovery(path, capacity_bytes)
            try:
                self._open_without_room(undo)
            except SpoolCorruptError as error:
                recover(path, error.damage, LifeClock(0, None, now_life))
                finish_recovery(path, capacity_bytes)
                self._open_without_room(undo)
            self._closing = undo.pop_all()
        self._written_before = written_bytes()
        self.epoch = self._contents.epoch
        self.birth = self._contents.birth
        self.life = self._contents.life
        self.life_ms = self.life()

    def commit(
        self,
        arrivals: Sequence[Arrival],
        done: Iterable[Delivery] = (),
        discarded: Iterable[Discard] = (),
        *,
        life_ms: int,
        holdings: Sequence[Holding] = (),
        close_statements: bool = False,
        close_discards: bool = False,
    ) -> None:
        """Store `arrivals` (numbered on from `next_sequence`) and `holdings` in the place of those of the
        same kind and key, end deliveries, all or nothing, for good.

        What is closed is what `statements` and `discards` told before this commit; what it stores and
        discards itself counts for the next report.
        """
        done, discarded = list(done), list(discarded)
        closing = (close_statements, close_discards)
        try:
            self._commit(arrivals, done, discarded, holdings, life_ms, closing)
        except SpoolFullError:
            self._room.refused = True
            if arrivals or holdings:
                raise
            # Ending deliveries makes room, and needs some to be written down.
            self._room.give_up_reserve()
            self._commit(arrivals, done, discarded, holdings, life_ms, closing)
        self._room.measure()

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[Waiting]:
        """Up to `limit` pending deliveries of one destination and rank, in order, behind sequence `after`.

        At least one when there is one; fewer than `limit` also when they hold `READ_CHARACTERS`.
        """
        with self._errors("cannot be read"), damage_of_any_kind(self.path):
            return self._contents.read(destination, rank, after, limit)

    def holding(self, kind: str, key: str) -> Holding | None:
        """What the device holds of a key, None when it never got anything or has forgotten a deletion."""
        with self._errors("cannot be read"), damage_of_any_kind(self.path):
            return self._contents.holdings.get(kind, key)

    def held_keys(self) -> int:
        """How many keys have a state."""
        with self._errors("cannot be read"):
            return self._contents.holdings.count()

    def held_bytes(self) -> int:
        """How much text of states is held, bytes."""
        with self._errors("cannot be read"):
            return self._contents.holdings.size()

    def newest(self, destination: str, rank: int) -> int:
        """The highest sequence ever pending for a destination and rank, else `BEFORE_EVERYTHING`."""
        lane = self._contents.lanes.get(destination, rank)
        return lane.newest if lane else BEFORE_EVERYTHING

    def pending(self, destination: str, rank: int) -> int:
        """How many deliveries wait, without a disk access."""
        lane = self._contents.lanes.get(destination, rank)
        return lane.pending if lane else 0

    def oldest_stored_ms(self, destination: str, rank: int) -> int | None:
        """When the delivery that comes next was stored, None when none waits."""
        if not self.pending(destination, rank):
            return None
        oldest = self.read(destination, rank, BEFORE_EVERYTHING, 1)
        return oldest[0].stored_ms if oldest else None

    def acknowledged_to(self, destination: str) -> int:
        """Return the number up to which no delivery to `destination` is pending.

        Each of them was acknowledged, or ended otherwise and is counted by `discards`. Negative while
        salvaged events are pending.
        """
        lanes = [each for each in self._contents.lanes if each.destination == destination and each.pending]
        oldest = [
            self.read(destination, each.rank, BEFORE_EVERYTHING, 1)[0].delivery.sequence for each in lanes
        ]
        return min(oldest, default=self.next_sequence) - 1

    def destinations(self) -> list[str]:
        """Every destination that ever had a delivery."""
        return list(dict.fromkeys(lane.destination for lane in self._contents.lanes))

    def backlog(self) -> dict[str, int]:
        """Pending deliveries by destination."""
        counts = dict.fromkeys(self.destinations(), 0)
        for lane in self._contents.lanes:
            counts[lane.destination] += lane.pending
        return counts

    def statements(self) -> list[Statement]:
        """What was stored since the last closing, by destination; those without anything are left out."""
        return self._contents.lanes.statements()

    def discards(self) -> list[DiscardTally]:
        """What was discarded since the last closing; a very long list comes in parts, a closing each."""
        with self._errors("cannot be read"), damage_of_any_kind(self.path):
            return read_discards(self._db)

    def recent_keys(self, count: int) -> list[bytes]:
        """The keys of the last `count` events, or as many as are kept, oldest first."""
        with self._errors("cannot be read"), damage_of_any_kind(self.path):
            return read_keys(self._db, self._contents.next_sequence, count)

    def tidy(self) -> bool:
        """A bounded step of housekeeping, for idle times: gives space back. Whether there is more to do.

        After the disk refused a commit it is what finds out that there is room again.
        """
        with self._errors("cannot be tidied"):
            return self._room.tidy()

    @property
    def next_sequence(self) -> int:
        """The number of the next arrival."""
        return self._contents.next_sequence

    @property
    def counted(self) -> dict[str, int]:
        """The last number of each counter of an ordered inbox."""
        return self._contents.counted

    @property
    def capacity_bytes(self) -> int:
        """How much may be stored; beside it the log and the reserve take 9 MB at most."""
        return self._room.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """How much is stored: the file's pages that are in use."""
        return self._room.used_bytes

    @property
    def capacity_deliveries(self) -> int:
        """How many deliveries may wait; an event that waits for two destinations is two."""
        return self._room.capacity_deliveries

    @property
    def used_deliveries(self) -> int:
        """How many deliveries wait, for all destinations."""
        return self._room.used_deliveries

    @property
    def pressure(self) -> float:
        """Used share of the scarcer capacity; at least 1.0 while the disk refuses."""
        return self._room.pressure

    @property
    def disk_refuses(self) -> bool:
        """Whether a commit found no room, until `tidy` finds some again."""
        return self._room.refused

    @property
    def written_bytes(self) -> int:
        """What this process has written to disks since the opening, by the kernel's count (0: untold)."""
        return written_bytes() - self._written_before

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

    def _open_without_room(self, undo: contextlib.ExitStack) -> None:
        """A start on a full disk takes the reserve."""
        try:
            self._open(undo)
        except SpoolFullError:
            reserve_of(self.path).unlink(missing_ok=True)
            self._open(undo)

    def _open(self, undo: contextlib.ExitStack) -> None:
        """Raises `SpoolCorruptError` for all damage that shows without reading everything."""
        with self._errors("cannot be opened"), contextlib.ExitStack() as attempt:
            if marker_of(self.path).exists():
                raise SpoolCorruptError(self.path, "it was found damaged while it was used")
            with damage_of_any_kind(self.path):
                check_header(self.path)
                self._db = attempt.enter_context(contextlib.closing(connect(self.path)))
                if misses_commits(self.path, self._db, PAGE_BYTES):
                    raise SpoolCorruptError(self.path, "its log is damaged before its end")
                if prepare(self.path, self._db, LifeClock(0, None, self._now_life)):
                    durable.sync(self.path.parent)
                self._contents = Contents(self._db, self._now_life)
            self._room = Room(self.path, self._db, *self._capacities, self._contents.lanes.pending)
            undo.push(attempt.pop_all())

    def _commit(
        self,
        arrivals: Sequence[Arrival],
        done: Sequence[Delivery],
        discarded: Sequence[Discard],
        holdings: Sequence[Holding],
        life_ms: int,
        closing: tuple[bool, bool],
    ) -> None:
        with self._errors("cannot commit"):
            self._contents.commit(arrivals, done, discarded, holdings, life_ms, closing)

    @contextlib.contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        try:
            with named_errors(self.path, problem):
                yield
        except SpoolCorruptError:
            with contextlib.suppress(OSError):
                marker_of(self.path).touch()  # so that the next opening recovers, whatever it sees itself
            raise
