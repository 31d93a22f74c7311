"""The machine's clocks, randomness and threads, for commands."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime

from eventplane.values import RandomBytes

monotonic, sleep, time_ns = time.monotonic, time.sleep, time.time_ns

random_bytes: RandomBytes = os.urandom

pool, processes = ThreadPoolExecutor, ProcessPoolExecutor


def now() -> datetime:
    """Return the moment of the wall clock."""
    return datetime.now(UTC)


def now_ms() -> int:
    """Return the Unix time, milliseconds."""
    return time_ns() // 1_000_000
