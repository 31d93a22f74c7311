"""All that is to leave the device: the lanes of every destination, and what ends without being delivered.

What ends so is kept here until the next commit, which counts it for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, groupby

from edge.lane import Lane
from edge.memory_lane import BEST_EFFORT_RANK, UNSTORED_RANK, Ended, Fleeting, MemoryLane
from edge.numbering import why_expired
from edge.reports import is_statement
from edge.spool import Delivery, Discard, Size, Spool, Waiting
from eventplane.contract import Priority
from eventplane.delivery import Outcome
from eventplane.receipts import SPOOL_FULL


class Outgoing:
    """The lanes over `spool`. `ended` is told how each event ended that is not in it."""

    def __init__(self, spool: Spool, ended: Ended) -> None:
        self.discards: dict[Delivery, Discard] = {}
        self.spool = spool
        self._ended = ended
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._in_memory: dict[tuple[str, int], MemoryLane] = {}

    def lanes(self, destination: str) -> dict[int, Lane | MemoryLane]:
        """New lanes of `destination` by rank, the most urgent first, what promises nothing last."""
        lanes: dict[int, Lane | MemoryLane] = {}
        for each in Priority:
            lane = Lane(self.spool, destination, each.rank, self.is_over)
            self._lanes[destination, each.rank] = lanes[each.rank] = lane
        for rank in (UNSTORED_RANK, BEST_EFFORT_RANK):
            in_memory = MemoryLane(destination, rank, self._ended)
            self._in_memory[destination, rank] = lanes[rank] = in_memory
        return dict(sorted(lanes.items()))

    def retire(self, destination: str) -> None:
        """Nothing goes to `destination` by its lanes any more; what waits for it stays in the spool."""
        self.clear(destination)
        for rank in (UNSTORED_RANK, BEST_EFFORT_RANK):
            del self._in_memory[destination, rank]
        for priority in Priority:
            del self._lanes[destination, priority.rank]

    def put(self, event: Fleeting) -> None:
        """Let `event` wait in memory."""
        self._in_memory[event.destination, event.rank].put(event)

    def clear(self, destination: str | None = None) -> None:
        """The line to `destination` (None: every line) is gone, and what was in memory for it."""
        for (to, _), lane in self._in_memory.items():
            if destination in (None, to):
                lane.clear()

    def delivered(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """These were made. Those that the spool holds, and that have to end there."""
        stored = []
        for each in deliveries:
            if lane := self._in_memory.get((each.destination, each.rank)):
                lane.end(each)
            else:
                stored.append(each)
        return stored

    def lose(self, delivery: Delivery, reason: str) -> bool:
        """End a delivery that was not made, if it is in memory; whether it is."""
        lane = self._in_memory.get((delivery.destination, delivery.rank))
        if lane is not None:
            lane.end(delivery, reason)
        return lane is not None

    def waiting(self, delivery: Delivery) -> Waiting | None:
        """A delivery that is under way, with its event's text; None when it has ended meanwhile."""
        if lane := self._in_memory.get((delivery.destination, delivery.rank)):
            return lane.under_way(delivery)
        found = self.spool.read(delivery.destination, delivery.rank, delivery.sequence - 1, 1)
        return found[0] if found and found[0].delivery == delivery else None

    def is_over(self, waiting: Waiting) -> bool:
        """Whether it is not to be sent any more; what has expired ends with the next commit."""
        if waiting.delivery in self.discards:
            return True
        if waiting.expires_ms is None or self.spool.life() < waiting.expires_ms:
            return False
        self.discard(waiting.delivery, Outcome.EXPIRED, why_expired(waiting))
        return True

    def discard(self, delivery: Delivery, outcome: Outcome, reason: str) -> None:
        """End `delivery` with the next commit."""
        self.discards[delivery] = Discard(delivery, outcome, reason)

    def withdraw(self, deliveries: Iterable[Delivery]) -> None:
        """These ended in the spool; those that are not under way must not be sent any more."""
        ended = set(deliveries)
        for destination, rank in {each[:2] for each in ended}:
            if lane := self._lanes.get((destination, rank)):
                lane.drop(ended)

    def evict(self, needed: Size, wanted: Size, least_rank: int) -> Size:
        """Drop the oldest events that are not under way, the lowest priority first, down to `least_rank`.

        Returns what they free, bytes being characters of text: `wanted` where there is so much, otherwise at
        least `needed`, otherwise nothing, and nothing is dropped.
        """
        freed = Size(0, 0)
        dropped: list[Waiting] = []
        for event in self._droppable(least_rank):
            freed = freed.plus(Size(len(event[0].json), len(event)))
            dropped += event
            if freed.covers(needed) and freed.covers(wanted):
                break
        if not freed.covers(needed):
            return Size(0, 0)
        for waiting in dropped:
            if not self.is_over(waiting):
                self.discard(waiting.delivery, Outcome.DROPPED, SPOOL_FULL)
        for lane in self._lanes.values():
            lane.drop({waiting.delivery for waiting in dropped})
        return freed

    def _droppable(self, least_rank: int) -> Iterator[list[Waiting]]:
        ranks = sorted((each.rank for each in Priority if each.rank >= least_rank), reverse=True)
        return chain.from_iterable(map(self._oldest, ranks))

    def _oldest(self, rank: int) -> Iterator[list[Waiting]]:
        """Events of one rank, each with all its deliveries that can be dropped."""
        lanes = (self._unsent(each, rank) for each in self.spool.destinations())
        for _, event in groupby(merge(*lanes, key=_sequence), key=_sequence):
            deliveries = [each for each in event if each.delivery not in self.discards]
            # What tells of losses must not be among them.
            if deliveries and not is_statement(deliveries[0].json):
                yield deliveries

    def _unsent(self, destination: str, rank: int) -> Iterator[Waiting]:
        # What no route leads to any more has no lane, and nothing of it is under way.
        lane = self._lanes.get((destination, rank)) or Lane(self.spool, destination, rank)
        return lane.unsent()


def _sequence(waiting: Waiting) -> int:
    return waiting.delivery.sequence
