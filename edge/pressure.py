"""Who may still come in when the spool fills up.

| filled to | urgent | normal | low |
| --- | --- | --- | --- |
| below 70 % | taken | taken | taken |
| 70 % | taken | taken | the channel's `when_full` |
| 85 % | taken | the channel's `when_full` | the channel's `when_full` |
| 100 % | taken, in the place of low, then normal | `when_full` | `when_full` |

`refuse` leaves the event with its sender. `drop_oldest` takes it in the place of the oldest that is not more
urgent. The steps are 15 % apart: in the default spool 38 MB each, more than 100,000 readings, so that what
is left to the next priority lasts hours and not minutes.
"""

from __future__ import annotations

from edge.outgoing import Outgoing
from edge.spool import Spool
from eventplane.contract import Priority, WhenFull

ROOM = {Priority.URGENT.rank: 1.0, Priority.NORMAL.rank: 0.85, Priority.LOW.rank: 0.70}
"""Up to which share of the capacity each rank comes in without a question."""

OVERHEAD = 100
"""What an event takes in the file beyond its text, bytes: its numbers, an index entry, a share of a page."""

EVICTED_AT_ONCE = 256 * 1024
"""Room made in one go, characters, so that a flood does not read the spool's oldest end once an event."""

_SMALLEST_SHARE = 64
"""But never more than one part in so many of the spool."""

_MOST_WEIGHT = 8
"""So many times the room of what shall come in is made on a disk that refuses it, no more: when that does not
help, what others store there is in the way, and more losses would not help either."""


class Pressure:
    """The gate in front of the `spool` for one turn after the other; `outgoing` is where room is made."""

    def __init__(self, spool: Spool, outgoing: Outgoing) -> None:
        self._spool = spool
        self._outgoing = outgoing
        self._at_once = min(EVICTED_AT_ONCE, spool.capacity_bytes // _SMALLEST_SHARE)
        self.begin()

    def begin(self) -> None:
        """A new turn: the spool's own figures hold again."""
        self._growth = 0
        self._credit = 0
        self._weight = 0
        self._closed = False

    def tighten(self) -> None:
        """The disk refused this turn: it counts as full, and takes twice the room for what it shall keep."""
        weight = max(1, 2 * self._weight)
        self.begin()
        self._weight = weight
        self._closed = weight > _MOST_WEIGHT

    def close(self) -> None:
        """Nothing comes in during this turn, and nothing is given up for it: there is no room at all."""
        self._closed = True

    def admits(self, rank: int, size: int, when_full: WhenFull) -> bool:
        """Whether an event of `size` characters comes in. Room is made for it where the table says so."""
        if self._closed:
            return False
        size += OVERHEAD
        if not self._has_room(rank, size) and not self._makes_room(rank, size, when_full):
            return False
        self._growth += size
        return True

    def _has_room(self, rank: int, size: int) -> bool:
        if self._weight:
            return False
        capacity = self._spool.capacity_bytes
        # After the disk refused something only urgent events ask it again: they are worth the attempt, and
        # what they would take the place of is worth keeping if it succeeds.
        pressure = 0.0 if rank == Priority.URGENT.rank else self._spool.pressure
        used = max(self._spool.used_bytes, pressure * capacity) + self._growth
        return used < ROOM[rank] * capacity and used + size <= capacity

    def _makes_room(self, rank: int, size: int, when_full: WhenFull) -> bool:
        urgent = rank == Priority.URGENT.rank
        if not urgent and when_full is not WhenFull.DROP_OLDEST:
            return False
        needed = size * max(1, self._weight)
        if self._credit < needed:
            least_rank = Priority.NORMAL.rank if urgent else rank
            freed = self._outgoing.evict(needed - self._credit, self._at_once, least_rank)
            self._credit += freed
            self._growth -= freed
        if self._credit < needed:
            return False
        self._credit -= needed
        return True
