"""Who may still come in when the spool fills up.

| filled to | urgent | normal | low |
| --- | --- | --- | --- |
| below 70 % | taken | taken | taken |
| 70 % | taken | taken | the channel's `when_full` |
| 85 % | taken | the channel's `when_full` | the channel's `when_full` |
| 100 % | taken, in the place of low, then normal | `when_full` | `when_full` |

`refuse` leaves the event with its sender. `drop_oldest` takes it in the place of the oldest that is not more
urgent. The spool is filled to the larger share of its two capacities: bytes, and deliveries that wait. The
steps are 15 % apart: in the default spool 38 MB each, more than 100,000 readings, so that what is left to the
next priority lasts hours and not minutes.
"""

from __future__ import annotations

from edge.delivery_queues import DeliveryQueues
from edge.spool import Size, Spool
from eventplane.contract import Priority, WhenFull

ROOM = {Priority.URGENT.rank: 1.0, Priority.NORMAL.rank: 0.85, Priority.LOW.rank: 0.70}
"""Up to which share of the capacity each rank comes in without a question."""

OVERHEAD = 100
"""What an event takes in the file beyond its text, bytes: its numbers, an index entry, a share of a page."""

EVICTED_AT_ONCE = Size(256 * 1024, 256)
"""What is dropped in one go, characters and deliveries, so that a flood does not read the spool's oldest end
once an event."""

_SMALLEST_SHARE = 64
"""But never more than one part in so many of the spool."""

_MOST_WEIGHT = 8
"""So many times the room of what shall come in is made on a disk that refuses it, no more: when that does not
help, what others store there is in the way, and more losses would not help either."""

_NOTHING = Size(0, 0)


class Pressure:
    """The gate in front of the `spool` for one turn after the other; `queues` is where room is made."""

    def __init__(self, spool: Spool, queues: DeliveryQueues) -> None:
        self._spool = spool
        self._queues = queues
        self._at_once = Size(
            min(EVICTED_AT_ONCE.bytes, spool.capacity_bytes // _SMALLEST_SHARE),
            min(EVICTED_AT_ONCE.deliveries, spool.capacity_deliveries // _SMALLEST_SHARE),
        )
        self.begin()

    def begin(self) -> None:
        """A new turn: the spool's own figures hold again."""
        self._growth = _NOTHING
        self._credit = _NOTHING
        self._weight = 0
        # In memory nothing is stored, so there is no use in trying.
        self._closed = not self._spool.is_on_disk

    def tighten(self) -> None:
        """The disk refused this turn: it counts as full, and takes twice the room for what it shall keep."""
        weight = max(1, 2 * self._weight)
        self.begin()
        self._weight = weight
        self._closed |= weight > _MOST_WEIGHT

    def close(self) -> None:
        """Nothing comes in during this turn, and nothing is given up for it: there is no room at all."""
        self._closed = True

    def admits(self, rank: int, size: Size, when_full: WhenFull) -> bool:
        """Whether an event of `size` comes in, bytes being characters. Makes room where the table says so."""
        if self._closed:
            return False
        size = Size(size.bytes + OVERHEAD, size.deliveries)
        lacking = self._lacking(rank, size)
        if any(lacking) and not self._makes_room(rank, lacking, when_full):
            return False
        self._growth = self._growth.plus(size)
        if any(self._credit):
            # Also what fits without a question takes the place of what was dropped.
            taken = zip(self._credit, size, lacking, strict=True)
            self._credit = Size(*(max(0, credit - max(each, lack)) for credit, each, lack in taken))
        return True

    def _lacking(self, rank: int, size: Size) -> Size:
        """Of `size` what finds no room unless it is made."""
        spool = self._spool
        # After the disk refused something only urgent events ask it again: they are worth the attempt, and
        # what they would take the place of is worth keeping if it succeeds.
        refused = self._weight or (spool.disk_refuses and rank != Priority.URGENT.rank)
        growth = self._growth
        fits = not refused and _fits(rank, size.bytes, spool.used_bytes + growth.bytes, spool.capacity_bytes)
        waiting = spool.used_deliveries + growth.deliveries
        counts = _fits(rank, size.deliveries, waiting, spool.capacity_deliveries)
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
