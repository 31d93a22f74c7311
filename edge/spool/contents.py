"""What is in the database: the row of the device and the tables, read and written together.

Errors are SQLite's own, and `DamagedRowError`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from edge.spool.database import FORMAT, SCHEMA, DamagedRowError, TableTotals, checksum, transaction
from edge.spool.deliveries import Deliveries, PendingQueues
from edge.spool.log import CommitNote
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Delivery,
    DeviceState,
    Discard,
    PendingDelivery,
    SpoolOrigin,
    StoredEvent,
)
from edge.spool.tables import (
    DeviceStates,
    add_discards,
    add_keys,
    forget_loss_reports,
    put_counters,
    read_counters,
)
from edge.uptime_clock import Uptime, UptimeClock

EPOCH_BYTES = 8
"""Random bytes in an epoch id, which names one life of the spool."""

READ_CHARACTERS = 512 * 1024
"""A read stops once it holds this much text, so that memory stays bounded whatever the events' sizes."""


@dataclass(frozen=True, slots=True)
class Device:
    """The row of the table `device`."""

    epoch: str
    next_sequence: int
    commits: int
    pending: int
    uptime_ms: int
    boot: str
    boot_ms: int
    origin: str
    totals: bytes

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Device:
        """Read the row. Raises `DamagedRowError`."""
        row = db.execute("SELECT * FROM device").fetchone()
        if row is None or checksum("device", *row[:-1]) != row[-1]:
            raise DamagedRowError("the row of the device")
        return cls(*row[:-1])

    def write(self, db: sqlite3.Connection) -> None:
        """Put it in the place of the row."""
        values = tuple(getattr(self, name) for name in _FIELDS)
        db.execute(_WRITE, (*values, checksum("device", *values)))


_FIELDS = tuple(each.name for each in fields(Device))
_WRITE = f"UPDATE device SET {', '.join(f'{each} = ?' for each in (*_FIELDS, 'checksum'))}"  # noqa: S608


def create(db: sqlite3.Connection, origin: SpoolOrigin, clock: UptimeClock) -> None:
    """Make the tables of a new epoch."""
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute(f"INSERT INTO device VALUES ({'0, ' * len(_FIELDS)}0)")  # noqa: S608
    epoch, totals = os.urandom(EPOCH_BYTES).hex(), TableTotals().pack()
    Device(epoch, 1, 0, 0, clock(), *clock.uptime(), json.dumps(origin), totals).write(db)


class Contents:
    """Reads and writes `db`. Loading it takes the same time whatever is pending, and shows damage near by."""

    def __init__(self, db: sqlite3.Connection, now_uptime: Callable[[], Uptime]) -> None:
        self._db = db
        self.device = device = Device.read(db)
        self.origin = read_origin(device.origin)
        self.clock = UptimeClock(device.uptime_ms, Uptime(device.boot, device.boot_ms), now_uptime)
        self._totals = TableTotals.unpack(device.totals)
        self._totals.check(db)
        self.counted = read_counters(db)
        self.queues = PendingQueues(db)
        self.states = DeviceStates(db)
        self._deliveries = Deliveries(db, self.queues)
        if self.queues.pending() != device.pending:
            raise DamagedRowError("the number of pending deliveries")
        oldest = [
            self.read(each.destination, each.rank, BEFORE_EVERYTHING, 1)[0].delivery.sequence
            for each in self.queues
            if each.pending
        ]
        self._first = min(oldest, default=device.next_sequence)

    def note(self) -> CommitNote:
        """Return what to note of the last commit."""
        device = self.device
        discards, states = (self._totals.total(each)[0] for each in ("discard", "device_state"))
        lost = read_origin(device.origin).lost
        return CommitNote(
            device.epoch,
            device.commits,
            device.next_sequence,
            device.pending,
            self._first,
            discards,
            states,
            -1 if lost is None else lost,
        )

    def commit(
        self,
        events: Sequence[StoredEvent],
        done: Iterable[Delivery],
        discarded: Iterable[Discard],
        states: Sequence[DeviceState],
        uptime_ms: int,
        closing: tuple[bool, bool],
    ) -> None:
        """Do all of it in one transaction; `closing`: whether statements and discards have been reported."""
        next_sequence = events[-1].sequence + 1 if events else self.device.next_sequence
        # The last one of a counter stands.
        counted = {name: number for each in events for name, number in each.positions.items()}
        before = self._totals.copy()
        try:
            with transaction(self._db):
                self._close(*closing)
                self._end(done)
                kinds = {each.delivery: each for each in discarded}
                # One that has ended already counts for nothing.
                add_discards(self._db, [kinds[each] for each in self._end(kinds)], self._totals)
                # Last, so that events find room in the place of what ends with them.
                self._insert(events, uptime_ms)
                put_counters(self._db, self.counted, counted, self._totals)
                self.states.put(states, self._totals)
                self.queues.write(self._totals)
                device = self._write_device(next_sequence, uptime_ms, stored=bool(events))
        except BaseException:
            self._totals = before
            self.queues.forget()
            self.states.forget()
            raise
        self.queues.keep()
        self.counted.update(counted)
        self.device = device

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[PendingDelivery]:
        """See `Spool.read`."""
        queue = self.queues.get(destination, rank)
        found: list[PendingDelivery] = []
        characters = 0
        if queue is None:
            return found
        for sequence, text, expires_ms, stored_ms in self._deliveries.read(queue, after):
            found.append(PendingDelivery(Delivery(destination, rank, sequence), text, expires_ms, stored_ms))
            characters += len(text)
            if len(found) == limit or characters >= READ_CHARACTERS:
                break
        return found

    def _close(self, statements: bool, discards: bool) -> None:
        if statements:
            self.queues.close_manifests()
        if discards:
            forget_loss_reports(self._db, self._totals)

    def _insert(self, events: Sequence[StoredEvent], uptime_ms: int) -> None:
        self._deliveries.add(events, uptime_ms, self._totals)
        if events:
            add_keys(self._db, events[0].sequence, [each.key for each in events])

    def _end(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Remove deliveries. Returns those that were there."""
        queues: dict[tuple[str, int], list[int]] = {}
        for destination, rank, sequence in deliveries:
            queues.setdefault((destination, rank), []).append(sequence)
        return [
            Delivery(*queue, sequence)
            for queue, sequences in queues.items()
            for sequence in self._deliveries.end(*queue, sequences, self._totals)
        ]

    def _write_device(self, next_sequence: int, uptime_ms: int, *, stored: bool) -> Device:
        """The origin is reported with the first events: from then on the spool is a resumed one."""
        boot, boot_ms = self.clock.uptime()
        device = Device(
            self.device.epoch,
            next_sequence,
            self.device.commits + 1,
            self.queues.pending(),
            max(self.device.uptime_ms, uptime_ms),
            boot,
            boot_ms,
            "" if stored else self.device.origin,
            self._totals.pack(),
        )
        device.write(self._db)
        return device


def read_origin(text: str) -> SpoolOrigin:
    """Return the origin of the row of the device."""
    if not text:
        return SpoolOrigin("resumed")
    origin = SpoolOrigin(*json.loads(text))
    return origin._replace(lost_ranges=tuple((first, last) for first, last in origin.lost_ranges))
