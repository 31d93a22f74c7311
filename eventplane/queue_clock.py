"""The present by the source queue's clock, for decisions that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

TOLERANCE_MS: Final = 10_000
"""Difference between the two clocks that is ignored, milliseconds. Lambda gives a function 10 s to start
(Lambda quotas), and its first batch waits meanwhile."""


class ReceivedMessage(Protocol):
    """A message: how often it was received, and when first by the queue's clock (Unix milliseconds)."""

    @property
    def attempt(self) -> int: ...
    @property
    def received_at_ms(self) -> int | None: ...


class QueueClock:
    """Gives the present in Unix milliseconds by `clock`, corrected where the source queue's clock disagrees.

    A message that is received for the first time was received at most now, by the queue's clock. What this
    machine's clock says beyond that is either its error or the time that the message waited for the function:
    taken together they give a present that is never late, so that nothing expires before its time.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._skew_ms = 0

    @property
    def skew_ms(self) -> int:
        """How far this machine's clock is ahead, milliseconds; negative: behind, 0: within the tolerance."""
        return self._skew_ms

    def observe(self, messages: Iterable[ReceivedMessage]) -> None:
        """Compare the clocks by those of `messages` that are received for the first time."""
        received = [
            message.received_at_ms
            for message in messages
            if message.attempt == 1 and message.received_at_ms is not None
        ]
        if received:
            ahead_ms = self._clock() - max(received)
            self._skew_ms = ahead_ms if abs(ahead_ms) > TOLERANCE_MS else 0

    def __call__(self) -> int:
        return self._clock() - self._skew_ms
