"""The machine's clocks and randomness. The process passes them in; parts of it take no others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from edge.uptime_clock import Uptime
from eventplane.randomness import RandomBytes, random_share

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS = 1_000_000


def system_uptime() -> Uptime:
    """Return the present moment by CLOCK_BOOTTIME of Linux."""
    return Uptime(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS)


@cache
def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


class System(NamedTuple):
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


SYSTEM: Final = System(
    time.monotonic, lambda: datetime.now(UTC), system_uptime, time.process_time, os.urandom
)
