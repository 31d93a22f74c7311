"""The lane of a channel that promises nothing: in memory, bounded, gone when the line is.

It has a `Lane`'s interface and goes behind all ranks of the same destination, so that it uses only room that
no promised delivery wants. What it gives up is told to `lost` with a reason, so that it is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from edge.spool import Delivery, Waiting

BEST_EFFORT_RANK = 3
"""Behind the ranks of the contract's priorities. No delivery of this rank is in the spool."""

MOST_EVENTS = 1_000
"""Events of one destination that wait at most: what the line moves in a few seconds."""

MOST_CHARACTERS = 512 * 1024
"""Their text at most: memory stays bounded whatever the events' sizes."""

OFFLINE = "offline"
OVERFLOW = "overflow"
"""Why an event was given up: there is no line, or too much waits for it already."""


class Fleeting(NamedTuple):
    """An event on its way to `destination` that nobody keeps."""

    destination: str
    type: str
    json: str


class BestEffortLane:
    """What waits for `destination`, the oldest first."""

    def __init__(self, destination: str, lost: Callable[[Fleeting, str], None]) -> None:
        self._destination = destination
        self._lost = lost
        self._waiting: deque[tuple[Waiting, Fleeting]] = deque()
        self._characters = 0
        self._count = 0

    @property
    def more(self) -> bool:
        """Never: all there is can be peeked at."""
        return False

    def put(self, event: Fleeting) -> None:
        """Let `event` wait; the oldest ones go when there are too many."""
        self._count += 1
        delivery = Delivery(self._destination, BEST_EFFORT_RANK, self._count)
        self._waiting.append((Waiting(delivery, event.json, None, 0), event))
        self._characters += len(event.json)
        while len(self._waiting) > MOST_EVENTS or self._characters > MOST_CHARACTERS:
            self._lost(self._pop(), OVERFLOW)

    def peek(self, count: int) -> Sequence[Waiting]:
        """Up to `count` events that come next."""
        return [waiting for waiting, _ in islice(self._waiting, count)]

    def take(self, count: int = 1) -> None:
        """The first `count` events are under way, and forgotten."""
        for _ in range(count):
            self._pop()

    def rewind(self) -> None:
        """The line is gone, and with it what waited."""
        while self._waiting:
            self._lost(self._pop(), OFFLINE)

    def _pop(self) -> Fleeting:
        _, event = self._waiting.popleft()
        self._characters -= len(event.json)
        return event
