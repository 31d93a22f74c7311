"""The machine's randomness, threads and clocks other than the wall clock.

The wiring of a function passes them in; nothing else uses the machine's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import ParamSpec, Protocol, TypeVar

from eventplane.randomness import RandomBytes, random_share

Arguments = ParamSpec("Arguments")
T = TypeVar("T")
Result = TypeVar("Result", covariant=True)

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


class Call(Protocol[Result]):
    """A call in a pool; see `concurrent.futures.Future`."""

    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> Result: ...

    def exception(self, timeout: float | None = None) -> BaseException | None: ...

    def cancel(self) -> bool: ...


class Pool(Protocol):
    """Calls functions in threads of its own."""

    def submit(
        self, call: Callable[Arguments, T], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Call[T]: ...


class Threads(Protocol):
    """Makes pools, and waits for what they do."""

    def pool(self, size: int) -> Pool:
        """Return a pool of up to `size` threads."""

    def ended(self, calls: Collection[Call[T]], timeout_s: float) -> list[Call[T]]:
        """Wait for the first of `calls`, and return those that have ended, in the order of `calls`."""


class SystemThreads:
    """`Threads` of the machine."""

    def pool(self, size: int) -> Pool:
        return ThreadPoolExecutor(size)

    def ended(self, calls: Collection[Call[T]], timeout_s: float) -> list[Call[T]]:
        ended, _ = wait([each for each in calls if isinstance(each, Future)], timeout_s, FIRST_COMPLETED)
        return [each for each in calls if each in ended]


threads: Threads = SystemThreads()
