"""The machine's clocks, randomness and threads, as a parameter of clients: a simulation passes in its own.

Only the adapters of real connections and of asyncio also use the machine's threads directly.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from eventplane.values import RandomBytes

TIMEOUT_MAX: Final = threading.TIMEOUT_MAX
"""Longest that a thread can wait, seconds."""

Thread = threading.Thread


class Lock(AbstractContextManager[bool, None], Protocol):
    """See `threading.RLock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


def start_thread(name: str, run: Callable[[], None]) -> Thread:
    """Start a thread that does not keep the process alive."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _uptime() -> tuple[str, int]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True)
class System:
    """`monotonic` seconds for every interval, and the wall clock `time_ns`, nanoseconds of Unix time.

    `uptime` gives the id of the machine's boot, and the milliseconds since then.
    """

    monotonic: Callable[[], float]
    time_ns: Callable[[], int]
    uptime: Callable[[], tuple[str, int]]
    random_bytes: RandomBytes
    start_thread: Callable[[str, Callable[[], None]], Thread]
    lock: Callable[[], Lock]
    condition: Callable[[], threading.Condition]
    event: Callable[[], threading.Event]

    def now_s(self) -> float:
        """Return the Unix time, seconds."""
        return self.time_ns() / 1e9

    def now_ms(self) -> int:
        """Return the Unix time, milliseconds."""
        return self.time_ns() // 1_000_000

    def now(self) -> datetime:
        """Return the moment of the wall clock."""
        return datetime.fromtimestamp(self.now_s(), UTC)


SYSTEM: Final = System(
    time.monotonic,
    time.time_ns,
    _uptime,
    os.urandom,
    start_thread,
    threading.RLock,
    threading.Condition,
    threading.Event,
)
