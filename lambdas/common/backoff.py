"""How long a message waits before it is tried again: exponential, with jitter. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

FIRST_S: Final = 2
"""Longest wait after the first failure, seconds. Ours: most faults of AWS are over by then."""

FACTOR: Final = 5
"""What the longest wait grows by with each failure. Ours: the five receives that a channel has by default
bridge three to five minutes, eight receives half an hour to fifty minutes."""

LONGEST_S: Final = 900
"""Longest wait of all, seconds. Ours: what waited for an outage to end is on its way a quarter of an hour
later."""

OUTAGE_FACTOR: Final = 1.4
"""What the longest wait grows by while something is away that all messages need. Ours: they go on after less
time than it was away."""

LAST_RECEIVES: Final = 4
"""Receives before the dead-letter queue after which a message waits `LONGEST_S` in any case: together they
bridge an hour, however few receives a channel has."""

LONGEST_URGENT_S: Final = 20
"""Longest wait of an urgent message, seconds: so long after an outage it goes on."""

LAST_URGENT_RECEIVES: Final = 40
"""Receives before the dead-letter queue after which an urgent message waits `LONGEST_S` in any case: those
before them bridge four hours of the 1,000 that SQS allows, these another ten."""

Wait: TypeAlias = Callable[[int, Callable[[], float]], int]
"""Gives the seconds to wait after the failure of an attempt, as `wait_s` does."""

_SETTLED: Final = 30  # failures after which the wait is the longest anyway


def wait_s(
    attempt: int, random: Callable[[], float], factor: float = FACTOR, longest_s: int = LONGEST_S
) -> int:
    """Seconds to wait after the failure of `attempt` (from 1); `random` gives numbers from 0 up to 1.

    Between half of the longest wait and all of it: messages that failed together do not come together again.
    """
    longest = min(longest_s, FIRST_S * factor ** min(attempt - 1, _SETTLED))
    return math.ceil(longest * (1 + random()) / 2)


def urgent_wait_s(attempt: int, random: Callable[[], float], max_receives: int) -> int:
    """Seconds to wait after `attempt` of an urgent message, as `wait_s` counts.

    Its dead-letter queue gets it after `max_receives`.
    """
    if attempt > max_receives - LAST_URGENT_RECEIVES:
        return LONGEST_S
    return wait_s(attempt, random, longest_s=LONGEST_URGENT_S)


def outage_wait_s(attempt: int, random: Callable[[], float], max_receives: int) -> int:
    """Seconds to wait after `attempt` while something is away that all messages need, as `wait_s` counts.

    A message that goes to its dead-letter queue after `max_receives` survives an outage of an hour.
    """
    if attempt > max_receives - LAST_RECEIVES:
        return LONGEST_S
    return wait_s(attempt, random, OUTAGE_FACTOR)
