"""A sink that gives no answer is left alone for a while, so that it costs the others no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from eventplane.envelope import Envelope
from lambdas.common.clock import Clock
from lambdas.webhook.delivery import Attempts
from lambdas.webhook.verdict import Failure

FIRST_S: Final = 2
LONGEST_S: Final = 60
"""How long a sink is left alone after a failure that speaks of it, and after many, seconds."""


class Breaker:
    """Attempts by `attempts`, but none while the sink is left alone: then its last failure is said again."""

    def __init__(self, attempts: Attempts, clock: Clock) -> None:
        self._attempts = attempts
        self._clock = clock
        self._failures = 0
        self._open_until_ms = 0
        self._last: Failure | None = None

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | Failure:
        """See `Delivery`."""
        left_ms = self._open_until_ms - self._clock()
        if self._last is not None and left_ms > 0:
            return replace(
                self._last, detail=f"not tried: {self._last.detail}", retry_after_s=left_ms / 1_000
            )
        answer = self._attempts.attempt(event, remaining_ms)
        if isinstance(answer, Failure) and answer.is_general:
            self._failures += 1
            self._last = answer
            pause_s = min(LONGEST_S, FIRST_S * 2 ** min(self._failures - 1, 10))
            self._open_until_ms = self._clock() + 1_000 * pause_s
        else:
            self._failures = 0
            self._last = None
        return answer
