"""All that is to leave the device: the lanes of every destination, and what ends without being delivered.

What ends so is kept here until the next commit, which counts it for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain, groupby

from edge.best_effort import BEST_EFFORT_RANK, BestEffortLane, Fleeting
from edge.lane import Lane
from edge.lifetimes import why_expired
from edge.reports import is_statement
from edge.spool import Delivery, Discard, Spool, Waiting
from eventplane.contract import Priority
from eventplane.delivery import Outcome
from eventplane.receipts import SPOOL_FULL


class Outgoing:
    """The lanes over `spool`. `lost` is told of every best-effort event that is given up, with the reason."""

    def __init__(self, spool: Spool, lost: Callable[[Fleeting, str], None]) -> None:
        self.discards: dict[Delivery, Discard] = {}
        self.best_effort: dict[str, BestEffortLane] = {}
        self.spool = spool
        self._lost = lost
        self._lanes: dict[tuple[str, int], Lane] = {}

    def lanes(self, destination: str) -> dict[int, Lane | BestEffortLane]:
        """New lanes of `destination` by rank, the most urgent first, what promises nothing last."""
        lanes: dict[int, Lane | BestEffortLane] = {}
        for priority in Priority:
            lane = Lane(self.spool, destination, priority.rank, self._is_over)
            self._lanes[destination, priority.rank] = lanes[priority.rank] = lane
        self.best_effort[destination] = lanes[BEST_EFFORT_RANK] = BestEffortLane(destination, self._lost)
        return lanes

    def retire(self, destination: str) -> None:
        """Nothing goes to `destination` by its lanes any more; what waits for it stays in the spool."""
        self.best_effort.pop(destination).rewind()
        for priority in Priority:
            del self._lanes[destination, priority.rank]

    def discard(self, delivery: Delivery, outcome: Outcome, reason: str) -> None:
        """End `delivery` with the next commit."""
        self.discards[delivery] = Discard(delivery, outcome, reason)

    def evict(self, needed: int, wanted: int, least_rank: int) -> int:
        """Drop the oldest events that are not under way, the lowest priority first, down to `least_rank`.

        Gives the characters of text that they free: `wanted` where there are so many, otherwise at least
        `needed`, otherwise none and nothing is dropped.
        """
        freed = 0
        dropped: list[Waiting] = []
        for event in self._droppable(least_rank):
            freed += len(event[0].json)
            dropped += event
            if freed >= max(needed, wanted):
                break
        if freed < needed:
            return 0
        for waiting in dropped:
            if not self._is_over(waiting):
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

    def _is_over(self, waiting: Waiting) -> bool:
        if waiting.delivery in self.discards:
            return True
        if waiting.expires_ms is None or self.spool.life() < waiting.expires_ms:
            return False
        self.discard(waiting.delivery, Outcome.EXPIRED, why_expired(waiting))
        return True


def _sequence(waiting: Waiting) -> int:
    return waiting.delivery.sequence
