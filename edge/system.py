"""The machine's clocks and randomness. The process passes them in; parts of it take no others.

The uptime is the time that the device has been running: milliseconds that cannot be set, carried on across
restarts. A device's wall clock jumps (no battery, no network, a wrong time server), so no age and no expiry
depends on it. Within one boot of the kernel the time since boot is exact, also through suspend and across
restarts of the process. How long a device was switched off is unknown; it counts as 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from eventplane.values import RandomBytes, random_share

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS = 1_000_000


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


def system_uptime() -> Uptime:
    """Return the present moment by CLOCK_BOOTTIME of Linux."""
    return Uptime(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS)


@cache
def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


class Host(NamedTuple):
    """`monotonic` seconds for every interval, the device's `uptime` across restarts, and the wall clock.

    The wall clock, `now`, is for time stamps only: it jumps. `cpu_time` is the process's, in seconds.
    """

    monotonic: Callable[[], float]
    now: Callable[[], datetime]
    uptime: Callable[[], Uptime]
    cpu_time: Callable[[], float]
    random_bytes: RandomBytes

    def share(self) -> float:
        """Draw a number from 0 up to 1."""
        return random_share(self.random_bytes)


SYSTEM: Final = Host(time.monotonic, lambda: datetime.now(UTC), system_uptime, time.process_time, os.urandom)
