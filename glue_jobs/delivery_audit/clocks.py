"""Devices' clocks, estimated from the quickest of their events.

No event arrives before it is recorded. So the least time from `recordedtime` to acceptance is the quickest
way up less what the clock is ahead, and what a device differs from the fleet's median is its clock. One that
was offline all day looks as if it were behind.
"""

from __future__ import annotations

from typing import Final

TOLERANCE_MS: Final = 10_000
"""How far a clock may seem off without being called so, milliseconds. Ours: more than a normal event waits on
its way up (a batch's delay, a busy line), less than what would turn the order of a person's day."""

LONGEST_DECISION_MS: Final = 180_000
"""Longest from a message's first receive to a decision at that receive, milliseconds. For so long the
routers' queues hide a message (`stacks.function_size`); then it is received a second time."""

CLOCK_SLACK_MS: Final = 5_000
"""How far a router's clock may be behind those of IoT Core and the queue, milliseconds. Ours: AWS keeps its
clocks within far less."""

MIN_SAMPLES: Final = 20
"""Fewest events that can show a clock to be behind. Ours: a few late events look the same."""


def usual_ms(median_ms: float | None) -> int:
    """The quickest way up, milliseconds, by the `median_ms` of the fleet's least times.

    A fleet that is wrong as a whole is measured against the cloud.
    """
    return int(min(max(median_ms or 0, 0), TOLERANCE_MS))


def is_off(skew_ms: int, samples: int) -> bool:
    """Whether a clock that is `skew_ms` ahead (negative: behind) by so many events is to be called wrong."""
    return skew_ms > TOLERANCE_MS or (skew_ms < -TOLERANCE_MS and samples >= MIN_SAMPLES)
