"""How long a message waits before it is tried again: exponential, with jitter. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 2
"""Longest wait after the first failure, seconds. Ours: most faults of AWS are over by then."""

FACTOR: Final = 5
"""What the longest wait grows by with each failure. Ours: the five receives that a channel has by default
bridge three to five minutes, eight receives half an hour to fifty minutes."""

LONGEST_S: Final = 900
"""Longest wait of all, seconds. Ours: what waited for an outage to end is on its way a quarter of an hour
later."""

_SETTLED: Final = 10  # failures after which the wait is the longest anyway


def wait_s(attempt: int, random: Callable[[], float]) -> int:
    """Seconds to wait after the failure of `attempt` (from 1); `random` gives numbers from 0 up to 1.

    Between half of the longest wait and all of it: messages that failed together do not come together again.
    """
    longest: int = min(LONGEST_S, FIRST_S * FACTOR ** min(attempt - 1, _SETTLED))
    return math.ceil(longest * (1 + random()) / 2)
