"""What waits for one destination at one priority, read from the spool in order and a little ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from edge.spool import BEFORE_EVERYTHING, READ_CHARACTERS, Spool, Waiting


class Lane:
    """A cursor over pending deliveries.

    What was taken is under way; when its connection is gone, `rewind` starts again from the oldest delivery
    that the spool still holds, so nothing has to be remembered about what was sent.
    """

    def __init__(self, spool: Spool, destination: str, rank: int) -> None:
        self._spool = spool
        self._destination = destination
        self._rank = rank
        self._read_up_to = BEFORE_EVERYTHING
        self._ahead: deque[Waiting] = deque()

    @property
    def more(self) -> bool:
        """Whether the spool may hold more than has been read ahead."""
        return self._spool.newest(self._destination, self._rank) > self._read_up_to

    def peek(self, count: int) -> Sequence[Waiting]:
        """Up to `count` deliveries that come next; fewer when they are large or there are no more."""
        missing = count - len(self._ahead)
        if missing > 0 and self.more:
            self._read(missing)
        return list(islice(self._ahead, count))

    def take(self) -> None:
        """The first delivery is under way."""
        self._ahead.popleft()

    def rewind(self) -> None:
        """Forget what was taken and read ahead."""
        self._ahead.clear()
        self._read_up_to = BEFORE_EVERYTHING

    def _read(self, count: int) -> None:
        found = self._spool.read(self._destination, self._rank, self._read_up_to, count)
        self._ahead.extend(found)
        cut_short = len(found) == count or sum(len(each.json) for each in found) >= READ_CHARACTERS
        # Otherwise this was all, also when the newest deliveries of all are done and gone.
        newest = self._spool.newest(self._destination, self._rank)
        self._read_up_to = found[-1].delivery.sequence if cut_short else newest
