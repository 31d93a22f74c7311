"""The circuit breaker that an asker has for each peer: who never answers is not waited for.

Closed: it is waited for. Open, after `OPENS_AFTER` requests in a row without an answer: it is not. When it is
heard again (a late reply, or a new announcement of what it handles) the circuit is half-open: one request
waits for it, as a probe, and closes the circuit or opens it again.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

OPENS_AFTER: Final = 10
"""Requests in a row that a peer leaves unanswered before nobody waits for it. Of the plane's requirements."""


class Circuit(StrEnum):
    """Whether requests wait for a peer."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Of one peer. A request asks `admits`; if so, it ends with exactly one of the others."""

    __slots__ = ("_announcement", "_is_probed", "_unanswered", "state")

    def __init__(self) -> None:
        self.state = Circuit.CLOSED
        self._unanswered = 0
        self._is_probed = False
        self._announcement: Hashable = None

    @property
    def unanswered(self) -> int:
        """Requests in a row without an answer."""
        return self._unanswered

    def admits(self) -> bool:
        """Whether a new request waits for the peer; a half-open circuit admits one at a time."""
        if self.state is Circuit.HALF_OPEN and not self._is_probed:
            self._is_probed = True
            return True
        return self.state is Circuit.CLOSED

    def answered(self, *, is_probe: bool) -> None:
        """A reply came to a request that waited for it, as a probe or before the circuit opened."""
        self._unanswered = 0
        if is_probe:
            self._is_probed = False
            self.state = Circuit.CLOSED
        else:
            self.heard()

    def left_unanswered(self, *, is_probe: bool) -> None:
        """A request that waited for it timed out."""
        if is_probe and self._is_probed:
            self._is_probed = False
            self.state = Circuit.OPEN
        elif self.state is Circuit.CLOSED:
            self._unanswered += 1
            if self._unanswered >= OPENS_AFTER:
                self.state = Circuit.OPEN

    def released(self, *, is_probe: bool) -> None:
        """A request that waited for it ended for another reason, which says nothing of the peer."""
        if is_probe:
            self._is_probed = False

    def heard(self) -> None:
        """The peer gave a sign of life that answers no request that waits for it."""
        if self.state is Circuit.OPEN:
            self.state = Circuit.HALF_OPEN

    def announced(self, announcement: Hashable) -> None:
        """Take the peer's last announcement, by a name that no other one has (None: unknown).

        Only a new one is a sign of life: the same one is read again at every look.
        """
        if announcement not in (None, self._announcement):
            self._announcement = announcement
            self.heard()
