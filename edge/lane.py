"""What waits for one destination at one priority, read from the spool in order and a little ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import islice

from edge.spool import BEFORE_EVERYTHING, READ_CHARACTERS, Delivery, Spool, Waiting

_MOST_READS = 4
"""How often one `peek` reads on when all that it found is over. A backlog that expired as a whole takes many
turns then, and an alarm that comes meanwhile waits for none of them."""

_READ_AHEAD = 100
"""Fewest deliveries that one read asks for: it costs little more than a read of one."""

_SLICE = 64
"""Deliveries that `unsent` reads at a time."""


class Lane:
    """A cursor over pending deliveries.

    What was taken is under way; when its connection is gone, `rewind` starts again from the oldest delivery
    that the spool still holds, so nothing has to be remembered about what was sent. A delivery of which
    `is_over` holds when it is its turn is passed over; who answers so sees to its end.
    """

    def __init__(
        self,
        spool: Spool,
        destination: str,
        rank: int,
        is_over: Callable[[Waiting], bool] = lambda _: False,
    ) -> None:
        self._spool = spool
        self._destination = destination
        self._rank = rank
        self._is_over = is_over
        self._read_up_to = BEFORE_EVERYTHING
        self._ahead: deque[Waiting] = deque()

    @property
    def more(self) -> bool:
        """Whether the spool may hold more than has been read ahead."""
        return self._spool.newest(self._destination, self._rank) > self._read_up_to

    def peek(self, count: int) -> Sequence[Waiting]:
        """Up to `count` deliveries that come next; fewer when they are large, over, or there are no more."""
        self._keep_ahead(lambda waiting: not self._is_over(waiting))
        for _ in range(_MOST_READS):
            missing = count - len(self._ahead)
            if missing > 0 and self.more:
                self._read(max(missing, _READ_AHEAD))
            if self._ahead or not self.more:
                break
        return list(islice(self._ahead, count))

    def take(self, count: int = 1) -> None:
        """The first `count` deliveries are under way."""
        for _ in range(count):
            self._ahead.popleft()

    def rewind(self) -> None:
        """Forget what was taken and read ahead."""
        self._ahead.clear()
        self._read_up_to = BEFORE_EVERYTHING

    def unsent(self) -> Iterator[Waiting]:
        """What was not taken yet, the oldest first."""
        after = self._ahead[0].delivery.sequence - 1 if self._ahead else self._read_up_to
        while found := self._spool.read(self._destination, self._rank, after, _SLICE):
            yield from found
            after = found[-1].delivery.sequence

    def drop(self, deliveries: Set[Delivery]) -> None:
        """Forget `deliveries`, which end without being sent."""
        self._keep_ahead(lambda waiting: waiting.delivery not in deliveries)

    def _keep_ahead(self, wanted: Callable[[Waiting], bool]) -> None:
        self._ahead = deque(each for each in self._ahead if wanted(each))

    def _read(self, count: int) -> None:
        found = self._spool.read(self._destination, self._rank, self._read_up_to, count)
        self._ahead.extend(each for each in found if not self._is_over(each))
        cut_short = len(found) == count or sum(len(each.json) for each in found) >= READ_CHARACTERS
        # Otherwise this was all, also when the newest deliveries of all are done and gone.
        newest = self._spool.newest(self._destination, self._rank)
        self._read_up_to = found[-1].delivery.sequence if cut_short else newest
