"""What waits for the cloud and in which order it goes: urgent first, low last, each in its order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from edge.outgoing import Outgoing
from edge.spool import Delivery, Waiting


class Backlog:
    """The lanes of one `destination`, and the groups that have to be sent once more on this connection."""

    def __init__(self, outgoing: Outgoing, destination: str) -> None:
        self._outgoing = outgoing
        self._destination = destination
        self._lanes = outgoing.lanes(destination)
        self._unstored, self._urgent, *self._ordinary = self._lanes.values()
        self._again: deque[tuple[Delivery, ...]] = deque()

    @property
    def more(self) -> bool:
        """Whether more ordinary events wait than have been read ahead."""
        return any(lane.more for lane in self._ordinary)

    def urgent(self, count: int) -> Sequence[Waiting]:
        """Up to `count` urgent events that come next, those that nobody stores first."""
        unstored = self._unstored.peek(count)
        return [*unstored, *self._urgent.peek(count - len(unstored))]

    def ordinary(self, count: int) -> Sequence[Waiting]:
        """Up to `count` others that come next."""
        waiting: list[Waiting] = []
        for lane in self._ordinary:
            waiting += lane.peek(count - len(waiting))
            if lane.more or len(waiting) >= count:
                break  # a lower priority waits until this one is empty
        return waiting

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """These, which come next, are under way."""
        for rank, count in Counter(each.rank for each in deliveries).items():
            self._lanes[rank].take(count)

    def repeat(self, *groups: tuple[Delivery, ...]) -> None:
        """Send each of `groups` that is not empty once more, by itself, ahead of what waits."""
        self._again.extendleft(group for group in reversed(groups) if group)

    def repeated(self) -> list[Waiting]:
        """The next group to send once more, which is then under way; empty when there is none.

        What expired since it was sent is not among it.
        """
        while self._again:
            found = map(self._outgoing.waiting, self._again.popleft())
            if waiting := [each for each in found if each is not None and not self._outgoing.is_over(each)]:
                return waiting
        return []

    def delivered(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """These were made; those of them that have to end in the spool."""
        return self._outgoing.delivered(deliveries)

    def refused(self, delivery: Delivery, reason: str) -> Waiting | None:
        """What is to become a dead letter; None when it has ended, as one that nobody keeps does here."""
        return None if self._outgoing.lose(delivery, reason) else self._outgoing.waiting(delivery)

    def rewind(self) -> None:
        """The connection is gone: all that the spool still holds is to be sent over the next one."""
        self._again.clear()
        for lane in self._lanes.values():
            lane.rewind()
        self._outgoing.clear(self._destination)
