"""The bytes a day that publishes may cost on a metered line, kept in the spool."""

from __future__ import annotations

from math import ceil

from edge.spool.store import Spool

_DAY_MS = 86_400_000
_COUNTER = "uplink.data-budget"


class DataBudget:
    """A day's budget may go at once, and comes back evenly, over a day of the device's uptime.

    What is spent is in the spool with the commit that follows, so no restart and no wall clock gives anything
    back; time switched off does not either. What is urgent never waits: it may overdraw another day's.
    """

    def __init__(self, bytes_per_day: int, spool: Spool) -> None:
        self._ms_per_byte = _DAY_MS / bytes_per_day
        self._spool = spool
        self._whole_at_ms: float = spool.counted.get(_COUNTER, 0)
        self._wanted = 0

    @property
    def left_bytes(self) -> int:
        """Return the bytes that may be spent now."""
        return max(0, int((_DAY_MS - self._spent_ms()) / self._ms_per_byte))

    @property
    def is_used_up(self) -> bool:
        """True if an ordinary publish has to wait, or would however small it was."""
        return self.wait_s(self._wanted) > 0

    def wait_s(self, size: int) -> float:
        """Return how long an ordinary publish of `size` bytes has to wait, seconds."""
        self._wanted = size
        # What costs more than a day's budget goes when all of it is there.
        return max(0.0, self._spent_ms() + min(_DAY_MS, size * self._ms_per_byte) - _DAY_MS) / 1_000

    def take(self, size: int) -> None:
        """Spend `size` bytes."""
        self._wanted = 0
        spent_ms = min(2.0 * _DAY_MS, self._spent_ms() + size * self._ms_per_byte)
        self._whole_at_ms = self._spool.clock() + spent_ms
        self._spool.keep(_COUNTER, ceil(self._whole_at_ms))

    def _spent_ms(self) -> float:
        return max(0.0, self._whole_at_ms - self._spool.clock())
