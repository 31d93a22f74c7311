"""What is in the database: the device's row, the lanes, the deliveries. Errors are SQLite's own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from edge.life_clock import LifeClock, Uptime
from edge.spool.batch import DamagedTextError
from edge.spool.deliveries import Deliveries
from edge.spool.discards import add_discards, forget_discards
from edge.spool.file import transaction
from edge.spool.holdings import Holdings
from edge.spool.lanes import Lanes
from edge.spool.records import BEFORE_EVERYTHING, Arrival, Birth, Delivery, Discard, Holding, Waiting
from edge.spool.ring import add_keys

READ_CHARACTERS = 512 * 1024
"""A read stops once it holds this much text, so that memory stays bounded whatever the events' sizes."""


class Contents:
    """Reads and writes `db`. Loading it takes the same time whatever waits, and shows damage near by."""

    epoch: str
    next_sequence: int

    def __init__(self, db: sqlite3.Connection, now_life: Callable[[], Uptime]) -> None:
        self._db = db
        self.epoch, self.next_sequence, life_ms, boot, uptime_ms, birth = db.execute(
            "SELECT * FROM device"
        ).fetchone()
        self.birth = Birth(*json.loads(birth)) if birth else Birth("resumed")
        self.life = LifeClock(life_ms, Uptime(boot, uptime_ms), now_life)
        self.counted = {str(name): int(last) for name, last in db.execute("SELECT name, last FROM counter")}
        self.lanes = Lanes(db)
        self.holdings = Holdings(db)
        self._deliveries = Deliveries(db)
        for lane in self.lanes:
            if lane.pending and not self.read(lane.destination, lane.rank, BEFORE_EVERYTHING, 1):
                raise DamagedTextError(None)

    def commit(
        self,
        arrivals: Sequence[Arrival],
        done: Iterable[Delivery],
        discarded: Iterable[Discard],
        holdings: Sequence[Holding],
        life_ms: int,
        closing: tuple[bool, bool],
    ) -> None:
        """One transaction; `closing` says whether statements and discards have been reported."""
        next_sequence = arrivals[-1].sequence + 1 if arrivals else self.next_sequence
        # The last one of a counter stands.
        counted = {name: number for each in arrivals for name, number in each.positions.items()}
        try:
            with transaction(self._db):
                self._close(*closing)
                self._end(done)
                kinds = {each.delivery: each for each in discarded}
                # One that has ended already counts for nothing.
                add_discards(self._db, [kinds[each] for each in self._end(kinds)])
                # Last, so that arrivals find room in the place of what ends with them.
                self._insert(arrivals, life_ms)
                self._db.executemany("INSERT OR REPLACE INTO counter VALUES (?, ?)", counted.items())
                self.holdings.put(holdings)
                self.lanes.write()
                self._write_device(next_sequence, life_ms, stored=bool(arrivals))
        except BaseException:
            self.lanes.forget()
            self.holdings.forget()
            raise
        self.lanes.keep()
        self.counted.update(counted)
        self.next_sequence = next_sequence

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[Waiting]:
        """See `Spool.read`."""
        lane = self.lanes.get(destination, rank)
        found: list[Waiting] = []
        characters = 0
        if lane is None:
            return found
        for sequence, text, expires_ms, stored_ms in self._deliveries.read(lane, after):
            found.append(Waiting(Delivery(destination, rank, sequence), text, expires_ms, stored_ms))
            characters += len(text)
            if len(found) == limit or characters >= READ_CHARACTERS:
                break
        return found

    def _close(self, statements: bool, discards: bool) -> None:
        if statements:
            self.lanes.close_statements()
        if discards:
            forget_discards(self._db)

    def _insert(self, arrivals: Sequence[Arrival], life_ms: int) -> None:
        self._deliveries.add(arrivals, life_ms, self.lanes.draft)
        if arrivals:
            add_keys(self._db, arrivals[0].sequence, [each.key for each in arrivals])

    def _end(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Forget deliveries. Those that were there."""
        lanes: dict[tuple[str, int], list[int]] = {}
        ended: list[Delivery] = []
        for destination, rank, sequence in deliveries:
            lanes.setdefault((destination, rank), []).append(sequence)
        for (destination, rank), sequences in lanes.items():
            if self.lanes.get(destination, rank) is not None:
                lane = self.lanes.draft(destination, rank)
                here = self._deliveries.end(lane, sequences)
                ended += [Delivery(destination, rank, each) for each in here]
        return ended

    def _write_device(self, next_sequence: int, life_ms: int, *, stored: bool) -> None:
        """The birth is reported with the first arrivals: from then on the spool is a resumed one."""
        self._db.execute(
            "UPDATE device SET next_sequence = ?, life_ms = MAX(life_ms, ?), boot = ?, uptime_ms = ?,"
            " birth = CASE WHEN ? THEN '' ELSE birth END",
            (next_sequence, life_ms, *self.life.uptime(), stored),
        )
