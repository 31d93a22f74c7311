"""When a failed event is tried again, and when it is given up: by time, from its first failed attempt. Pure.

One schedule for every reader: the client library over each transport, functions and webhooks
(docs/adr/0044-giving-up.md). `age_s` is the seconds since the first failed attempt; 0 at that attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import Final, NamedTuple, Self

from eventplane.limits import DAY_S, MAX_RECEIVES, UNSETTLED, URGENT_S
from eventplane.values import whole_number

FIRST_S: Final = 1
"""Longest wait after the first failure, seconds. Each wait then is as long as the event has failed so far."""

URGENT_FOR_S: Final = 3 * 3_600
"""For how long an urgent event waits `URGENT_S` at most, seconds."""

URGENT_LATER_S: Final = 300
LONGEST_S: Final = 900
"""Longest wait of an urgent event that has failed for longer, and of any other, seconds. Ours."""

GIVE_UP_S: Final = 12 * 3_600
ORDERED_S: Final = 900
"""When an event that is not urgent, and one of an ordered inbox, is given up, seconds. Ours: a night without
the system that a reader needs; in an ordered inbox all that follows waits."""

SPARE: Final = 100
"""Receives of those that SQS counts which no schedule plans: for copies, restarts and readers that die."""

_EVEN: Final = 0.75
"""Least part of the longest wait. Ours: events that failed together come apart, and a day of urgent attempts
stays below the receives that SQS counts, less `SPARE`."""


def default_give_up_s(retention_s: int, *, is_urgent: bool, is_ordered: bool) -> int:
    """Return the seconds after its first failure at which an event is given up, where no contract says so.

    They are at most half of the retention: the queue deletes what it has kept for that long.
    """
    longest_s = ORDERED_S if is_ordered else DAY_S if is_urgent else GIVE_UP_S
    return min(longest_s, retention_s // 2)


def is_reported(attempt: int, *, is_last: bool) -> bool:
    """Return whether a failed attempt is a warning in the log: the attempts 1, 2, 4, 8, ... and the last."""
    return is_last or attempt & (attempt - 1) == 0


class RetrySchedule(NamedTuple):
    """The attempts at one event until `give_up_after_s` seconds after the first that failed.

    `max_receives` are those that end without a settlement. The default is for a reader that knows nothing of
    the event: an attempt too many costs less than an alarm.
    """

    is_urgent: bool = True
    is_ordered: bool = False
    give_up_after_s: int = DAY_S
    max_receives: int = UNSETTLED

    @classmethod
    def read(cls, hint: str | None) -> Self | None:
        """Return the schedule that a router wrote into a message (`hint`); None if there is none."""
        try:
            match (hint or "").split("/"):
                case ["urgent" | "normal" as priority, "source" | "none" as ordering, give_up, receives]:
                    give_up_after_s, most = (
                        whole_number(give_up, DAY_S),
                        whole_number(receives, MAX_RECEIVES, 1),
                    )
                    return cls(priority == "urgent", ordering == "source", give_up_after_s, most)
        except ValueError:
            pass  # the schedule of a reader that knows nothing is good enough
        return None

    @property
    def hint(self) -> str:
        """The schedule in a message, for a reader without the contract."""
        priority, ordering = "urgent" if self.is_urgent else "normal", "source" if self.is_ordered else "none"
        return f"{priority}/{ordering}/{self.give_up_after_s}/{self.max_receives}"

    def is_over(self, age_s: float) -> bool:
        """Return whether an attempt that failed at `age_s` was the last."""
        return age_s >= self.give_up_after_s

    def wait_s(self, age_s: float, attempt: int, chance: float) -> float:
        """Return the seconds until the next attempt after number `attempt` (from 1) failed.

        `chance` is a random number from 0 up to 1. The last attempt is made when the time is over.
        """
        longest_s = LONGEST_S
        if self.is_urgent:
            longest_s = URGENT_S if age_s < URGENT_FOR_S else URGENT_LATER_S
        wait_s = max(FIRST_S, min(longest_s, age_s) * (_EVEN + (1 - _EVEN) * chance))
        left_s = self.give_up_after_s - age_s
        if left_s <= 0:
            return wait_s
        if attempt >= MAX_RECEIVES - SPARE:
            # Others spent receives: those that are left have to last.
            wait_s = max(wait_s, left_s / max(1, MAX_RECEIVES - attempt))
        return max(FIRST_S, min(wait_s, left_s))

    def receives(self, age_s: float) -> int:
        """Return the most receives until `age_s` that all end in order: each is followed by its wait."""
        return sum(1 for _ in takewhile(lambda at_s: at_s <= age_s, self._receives_s()))

    def least_age_s(self, attempt: int) -> float:
        """Return the least age of an event at its `attempt`, if all before ended in order."""
        return next(islice(self._receives_s(), min(attempt, MAX_RECEIVES) - 1, None))

    def _receives_s(self) -> Iterator[float]:
        at_s = 0.0
        for receives in count(1):
            yield at_s
            at_s += self.wait_s(at_s, receives, 0.0)

    @property
    def most_receives(self) -> int:
        """The receives after which a queue gives up by itself what its reader, a function, cannot settle."""
        return min(MAX_RECEIVES, self.receives(self.give_up_after_s) + self.max_receives)


URGENT: Final = RetrySchedule()
"""The schedule of people's alarms on their way in, and of what a reader knows nothing of."""

ROUTINE: Final = RetrySchedule(is_urgent=False, give_up_after_s=GIVE_UP_S)
"""The schedule of the plane's own work, which no channel declares."""
