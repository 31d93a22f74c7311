"""The time that the device has been running: milliseconds that nobody can set, carried on across restarts.

The wall clock of a device jumps (no battery, no network, a wrong time server), so no age and no expiry
depends on it. Within one boot of the kernel the time since boot is exact, also through suspend and across
restarts of the process. How long a device was switched off is unknown; it counts as 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS = 1_000_000


class Uptime(NamedTuple):
    """A moment: `ms` milliseconds since the boot that `boot` names."""

    boot: str
    ms: int


def system_uptime() -> Uptime:
    """Return the present moment by CLOCK_BOOTTIME of Linux."""
    return Uptime(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS)


class UptimeClock:
    """Goes on from `uptime_ms`, which it was at `then`. Calling it returns the milliseconds of uptime."""

    def __init__(
        self, uptime_ms: int = 0, then: Uptime | None = None, now: Callable[[], Uptime] = system_uptime
    ) -> None:
        self._now = now
        start = now()
        # Another boot, or none known: the time since then is unknown.
        slept = start.ms - then.ms if then is not None and then.boot == start.boot else 0
        self._offset_ms = uptime_ms + max(0, slept) - start.ms

    def __call__(self) -> int:
        return self._now().ms + self._offset_ms

    def uptime(self) -> Uptime:
        """Return the moment to keep together with the milliseconds."""
        return self._now()


_boot_id: list[str] = []


def _boot() -> str:
    # It cannot change while we run; the file is read once.
    if not _boot_id:
        _boot_id.append(_BOOT_ID.read_text(encoding="ascii").strip())
    return _boot_id[0]
