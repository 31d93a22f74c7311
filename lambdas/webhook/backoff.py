"""How long an event waits for its next attempt."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 2
LONGEST_S: Final = 300
"""Bounds of the backoff, seconds: the first wait is at most the one, every wait at most the other."""

LONGEST_ASKED_S: Final = 900
"""Most of a Retry-After that is honoured, seconds: an endpoint cannot put an alarm off for ever."""

Uniform = Callable[[float, float], float]
"""Gives a random number between two, like `random.uniform`."""


def delay_s(attempt: int, retry_after_s: float | None, left_s: float, uniform: Uniform) -> int:
    """Seconds until the attempt after number `attempt` (from 1), at least 1.

    Exponential with full jitter, so that what failed together does not come back together; on top of what
    the endpoint asked for. The wait does not pass `left_s`, after which the event is given up: the last
    attempt is made then.
    """
    # Beyond that every bound is the longest; the power of a large attempt would be a huge number.
    bound = min(LONGEST_S, FIRST_S * 2.0 ** min(attempt - 1, 16))
    asked = min(retry_after_s or 0, LONGEST_ASKED_S)
    return max(1, math.ceil(min(asked + uniform(0, bound), left_s)))
