"""The time that the device has been running: milliseconds that nobody can set, carried on across restarts.

The wall clock of a device jumps (no battery, no network, a wrong time server), so no age and no expiry
depends on it. Within one boot of the kernel the time since boot is exact, also through suspend and across
restarts of the process. How long a device was switched off is unknown; it counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Uptime(NamedTuple):
    """A moment: `ms` milliseconds since the boot that `boot` names."""

    boot: str
    ms: int


class UptimeClock:
    """Goes on from `uptime_ms`, which it was at `then`. Calling it returns the milliseconds of uptime."""

    def __init__(self, now: Callable[[], Uptime], uptime_ms: int = 0, then: Uptime | None = None) -> None:
        self._now = now
        start = now()
        # Another boot, or none known: the time since then is unknown.
        slept = start.ms - then.ms if then is not None and then.boot == start.boot else 0
        self._offset_ms = uptime_ms + max(0, slept) - start.ms

    def __call__(self) -> int:
        return self.at(self._now())

    def at(self, moment: Uptime) -> int:
        """Return the milliseconds that this clock shows at a `moment` of this boot."""
        return moment.ms + self._offset_ms

    def moment(self, uptime_ms: int) -> Uptime:
        """Return the moment of this boot at which this clock shows `uptime_ms` milliseconds."""
        return Uptime(self._now().boot, uptime_ms - self._offset_ms)

    def uptime(self) -> Uptime:
        """Return the moment to keep together with the milliseconds."""
        return self._now()
