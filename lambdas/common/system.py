"""The machine's randomness, threads and clocks; the wiring of a function passes them in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from eventplane.values import RandomBytes, random_share

T = TypeVar("T")

Pool = Executor
Call = Future

random_bytes: RandomBytes = os.urandom


def chance() -> float:
    """Draw a number from 0 up to 1."""
    return random_share(random_bytes)


def uniform(low: float, high: float) -> float:
    """Draw a number between two."""
    return low + (high - low) * chance()


monotonic = time.monotonic
"""Seconds of a clock that is never set."""

cpu_time = time.thread_time
"""Seconds that the calling thread has computed."""

sleep = time.sleep


class Threads:
    """Makes pools, and waits for what they do."""

    def pool(self, size: int) -> Pool:
        """Return a pool of up to `size` threads."""
        return ThreadPoolExecutor(size)

    def ended(self, calls: Collection[Call[T]], timeout_s: float) -> list[Call[T]]:
        """Wait for the first of `calls`, and return those that have ended, in the order of `calls`."""
        ended, _ = wait(calls, timeout_s, FIRST_COMPLETED)
        return [each for each in calls if each in ended]


threads = Threads()


Clock = Callable[[], int]
"""Gives the present in Unix milliseconds."""


def system_clock() -> int:
    """The machine's present, in Unix milliseconds."""
    return time.time_ns() // 1_000_000
