"""Admit events while the spool fills up.

| filled to | urgent | normal | low |
| --- | --- | --- | --- |
| below 70 % | taken | taken | taken |
| 70 % | taken | taken | the channel's `when_full` |
| 85 % | taken | the channel's `when_full` | the channel's `when_full` |
| 100 % | taken, in the place of low, then normal | `when_full` | `when_full` |

`refuse` leaves the event with its sender. `drop_oldest` stores it in the place of the oldest that is not more
urgent. The spool is filled to the larger share of its two capacities: bytes and pending deliveries. The steps
are 15 % apart: in the default spool 38 MB each, more than 100,000 readings, so that what is left to the next
priority lasts hours and not minutes.
"""

from __future__ import annotations

from edge.delivery_queues import DeliveryQueues
from edge.spool import Size
from edge.spool.store import Spool
from eventplane.contract import Priority, WhenFull

ROOM = {Priority.URGENT.rank: 1.0, Priority.NORMAL.rank: 0.85, Priority.LOW.rank: 0.70}
"""The share of the capacity up to which events of each rank are always admitted."""

OVERHEAD = 100
"""Bytes of an event in the file beyond its text: its numbers, an index entry, a share of a page."""

EVICTED_AT_ONCE = Size(256 * 1024, 256)
"""What is evicted at once, characters and deliveries, so that a flood does not read the spool's oldest events
for each new one."""

_SMALLEST_SHARE = 64
"""But at most one part in so many of the spool."""

_MOST_WEIGHT = 8
"""At most so many times the room of an event is made on a disk that has none. If that does not help, other
files are in the way, and more losses would not help either."""

_NOTHING = Size(0, 0)


class Pressure:
    """Admits events to `spool`, batch by batch, and makes room in `queues`."""

    def __init__(self, spool: Spool, queues: DeliveryQueues) -> None:
        self._spool = spool
        self._queues = queues
        space = spool.space
        self._at_once = Size(
            min(EVICTED_AT_ONCE.bytes, space.capacity_bytes // _SMALLEST_SHARE),
            min(EVICTED_AT_ONCE.deliveries, space.capacity_deliveries // _SMALLEST_SHARE),
        )
        self.begin()

    def begin(self) -> None:
        """Begin a batch with the spool's own figures."""
        self._growth = _NOTHING
        self._credit = _NOTHING
        self._weight = 0
        # In memory nothing is stored, so there is no use in trying.
        self._closed = not self._spool.is_on_disk

    def tighten(self) -> None:
        """Begin the batch again after the disk had no room: it is full, and events need twice the room."""
        weight = max(1, 2 * self._weight)
        self.begin()
        self._weight = weight
        self._closed |= weight > _MOST_WEIGHT

    def close(self) -> None:
        """Admit nothing of this batch, and evict nothing for it: there is no room at all."""
        self._closed = True

    def admits(self, rank: int, size: Size, when_full: WhenFull) -> bool:
        """Return whether an event of `size` (bytes: characters) is admitted; evict others where allowed."""
        if self._closed:
            return False
        size = Size(size.bytes + OVERHEAD, size.deliveries)
        lacking = self._lacking(rank, size)
        if any(lacking) and not self._makes_room(rank, lacking, when_full):
            return False
        self._growth = self._growth.plus(size)
        if any(self._credit):
            # An event that fits uses up the room of what was evicted, too.
            taken = zip(self._credit, size, lacking, strict=True)
            self._credit = Size(*(max(0, credit - max(each, lack)) for credit, each, lack in taken))
        return True

    def _lacking(self, rank: int, size: Size) -> Size:
        """Return the part of `size` for which there is no room yet."""
        space = self._spool.space
        # After a commit found no room only urgent events try again: they are worth the attempt, and if it
        # succeeds, nothing has to be evicted.
        refused = self._weight or (space.refused and rank != Priority.URGENT.rank)
        growth = self._growth
        fits = not refused and _fits(rank, size.bytes, space.used_bytes + growth.bytes, space.capacity_bytes)
        waiting = space.used_deliveries + growth.deliveries
        counts = _fits(rank, size.deliveries, waiting, space.capacity_deliveries)
        if fits and counts:
            return _NOTHING
        return Size(0 if fits else size.bytes * max(1, self._weight), 0 if counts else size.deliveries)

    def _makes_room(self, rank: int, lacking: Size, when_full: WhenFull) -> bool:
        urgent = rank == Priority.URGENT.rank
        if not urgent and when_full is not WhenFull.DROP_OLDEST:
            return False
        if not self._credit.covers(lacking):
            missing = lacking.minus(self._credit)
            wanted = Size(
                *(each if lack > 0 else 0 for lack, each in zip(missing, self._at_once, strict=True))
            )
            freed = self._queues.evict(missing, wanted, Priority.NORMAL.rank if urgent else rank)
            self._credit = self._credit.plus(freed)
            self._growth = self._growth.minus(freed)
        return self._credit.covers(lacking)


def _fits(rank: int, size: int, used: int, capacity: int) -> bool:
    return size == 0 or (used < ROOM[rank] * capacity and used + size <= capacity)
