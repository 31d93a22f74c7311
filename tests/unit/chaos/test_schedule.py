"""A schedule of faults keeps to its period, and one that does not fit is refused."""

from collections.abc import Callable

import pytest

from local.chaos.schedule import (
    Mode,
    Pace,
    PlannedFault,
    ScheduleError,
    every,
    schedule,
)


@pytest.mark.source("P16")
def test_a_steady_kill_strikes_once_a_period() -> None:
    assert every(30, ["a", "b"], 10, 1) == (
        PlannedFault(5, 6, "a", 0),
        PlannedFault(10, 11, "b", 0),
        PlannedFault(15, 16, "a", 0),
        PlannedFault(20, 21, "b", 0),
        PlannedFault(25, 26, "a", 0),
        PlannedFault(30, 31, "b", 0),
    )


@pytest.mark.parametrize(
    "plan",
    [
        lambda: schedule(1, ["a"], 1, 100.0, Mode.PAIRS, Pace(2, 3, 1)),
        lambda: schedule(1, ["a", "b"], 1, 2.0, Mode.PAIRS, Pace(2, 3, 1)),
        lambda: every(3, ["a", "b"], 10, 1),
    ],
    ids=["too few kinds", "too short for a pair", "too short for a kill"],
)
def test_a_plan_that_does_not_fit_is_refused(plan: Callable[[], object]) -> None:
    with pytest.raises(ScheduleError):
        plan()
