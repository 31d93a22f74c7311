"""The endpoint's rate, kept by each process for itself."""

from __future__ import annotations

from lambdas.common.clock import Clock


class Pace:
    """Requests at least `60 / requests_per_minute` seconds apart, times the `processes` that share the rate.

    Shared evenly rather than counted in one place: a counter would cost two database calls an event, and what
    the endpoint wants is not to be overrun. None means no limit.
    """

    def __init__(self, requests_per_minute: int | None, processes: int, clock: Clock) -> None:
        self._interval_ms = 60_000 * processes / requests_per_minute if requests_per_minute else 0
        self._clock = clock
        self._next_ms = 0.0

    def wait_ms(self) -> float:
        """Milliseconds until a request may be made."""
        return max(0.0, min(self._next_ms - self._clock(), self._interval_ms))

    def take(self) -> None:
        """A request is made now."""
        self._next_ms = self._clock() + self._interval_ms
