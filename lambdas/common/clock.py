"""The wall clock, as a value that can be injected."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Gives the present in Unix milliseconds."""


def system_clock() -> int:
    """The machine's present, in Unix milliseconds."""
    return time.time_ns() // 1_000_000
