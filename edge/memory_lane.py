"""The lane of what nobody stores: in memory, bounded, gone when the line is.

It has a `Lane`'s interface. Two of them stand beside the ranks of a destination: behind them what a channel
promises nothing for, in front of them the urgent events that found no room in the spool. How each event
ended is told to `ended`, so that it is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from edge.spool import Delivery, Waiting

BEST_EFFORT_RANK = 3
"""Behind the ranks of the contract's priorities: it uses only room that no promised delivery wants."""

UNSTORED_RANK = -1
"""In front of them: an urgent event that found no room. No delivery of these two ranks is in the spool."""

MOST_EVENTS = 1_000
"""Events of one lane that wait at most: what the line moves in a few seconds."""

MOST_CHARACTERS = 512 * 1024
"""Their text at most: memory stays bounded whatever the events' sizes."""

OFFLINE = "offline"
OVERFLOW = "overflow"
UNCONFIRMED = "unconfirmed"
"""Why an event was given up: there is no line, too much waits for it already, or it was sent and nobody has
said in time that it arrived."""


class Fleeting(NamedTuple):
    """An event on its way to `destination` that nobody keeps; `key` as in the spool."""

    destination: str
    type: str
    json: str
    key: bytes
    rank: int = BEST_EFFORT_RANK


Ended = Callable[[Fleeting, str | None], None]
"""Told of each event's end, with the reason when it was not delivered."""


class MemoryLane:
    """What waits for `destination` at `rank`, the oldest first, and what is under way."""

    def __init__(self, destination: str, rank: int, ended: Ended) -> None:
        self._destination = destination
        self._rank = rank
        self._ended = ended
        self._waiting: deque[tuple[Waiting, Fleeting]] = deque()
        self._under_way: dict[Delivery, tuple[Waiting, Fleeting]] = {}
        self._characters = 0
        self._count = 0

    @property
    def more(self) -> bool:
        """Never: all there is can be peeked at."""
        return False

    def put(self, event: Fleeting) -> None:
        """Let `event` wait; the oldest ones go when there are too many."""
        self._count += 1
        delivery = Delivery(self._destination, self._rank, self._count)
        self._waiting.append((Waiting(delivery, event.json, None, 0), event))
        self._characters += len(event.json)
        while len(self._waiting) > MOST_EVENTS or self._characters > MOST_CHARACTERS:
            self._ended(self._pop()[1], OVERFLOW)

    def peek(self, count: int) -> Sequence[Waiting]:
        """Up to `count` events that come next."""
        return [waiting for waiting, _ in islice(self._waiting, count)]

    def take(self, count: int = 1) -> None:
        """The first `count` events are under way."""
        for _ in range(count):
            waiting, event = self._pop()
            self._under_way[waiting.delivery] = waiting, event

    def under_way(self, delivery: Delivery) -> Waiting | None:
        """A delivery that was taken, with its text; None when it has ended."""
        found = self._under_way.get(delivery)
        return found[0] if found else None

    def end(self, delivery: Delivery, reason: str | None = None) -> None:
        """A delivery was made, or not for a `reason`."""
        if found := self._under_way.pop(delivery, None):
            self._ended(found[1], reason)

    def rewind(self) -> None:
        """Nobody confirms any more what is under way. It is not sent again; the rest goes on waiting."""
        for delivery in list(self._under_way):
            self.end(delivery, UNCONFIRMED)

    def clear(self) -> None:
        """The line is gone, and with it everything."""
        self.rewind()
        while self._waiting:
            self._ended(self._pop()[1], OFFLINE)

    def _pop(self) -> tuple[Waiting, Fleeting]:
        first = self._waiting.popleft()
        self._characters -= len(first[1].json)
        return first
