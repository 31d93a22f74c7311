"""What waits for the cloud and in which order it goes: urgent first, low last, each in its order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from edge.outgoing import Outgoing
from edge.spool import Delivery, Waiting


class Backlog:
    """The lanes of one `destination`, and the groups that have to be sent once more on this connection."""

    def __init__(self, outgoing: Outgoing, destination: str) -> None:
        self._spool = outgoing.spool
        self._lanes = outgoing.lanes(destination)
        self._urgent, *self._ordinary = self._lanes.values()
        self._again: deque[tuple[Delivery, ...]] = deque()

    @property
    def more(self) -> bool:
        """Whether more ordinary events wait than have been read ahead."""
        return any(lane.more for lane in self._ordinary)

    def urgent(self, count: int) -> Sequence[Waiting]:
        """Up to `count` urgent events that come next."""
        return self._urgent.peek(count)

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
        """The next group to send once more, which is then under way; empty when there is none."""
        while self._again:
            found = [self.text_of(each) for each in self._again.popleft()]
            if waiting := [each for each in found if each is not None]:
                return waiting
        return []

    def text_of(self, delivery: Delivery) -> Waiting | None:
        """A delivery with its event's text, None when it has ended meanwhile."""
        found = self._spool.read(delivery.destination, delivery.rank, delivery.sequence - 1, 1)
        return found[0] if found and found[0].delivery == delivery else None

    def rewind(self) -> None:
        """The connection is gone: all that the spool still holds is to be sent over the next one."""
        self._again.clear()
        for lane in self._lanes.values():
            lane.rewind()
