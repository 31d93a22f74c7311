"""When a failed event is tried again, and when it is given up."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Ordering, Priority
from eventplane.contract.schedules import most_receives, schedule_of
from eventplane.limits import MAX_RECEIVES
from eventplane.retries import (
    DAY_S,
    FIRST_S,
    LONGEST_S,
    ROUTINE,
    SPARE,
    URGENT_FOR_S,
    URGENT_LATER_S,
    URGENT_S,
    RetrySchedule,
)
from parts.replay.order import MAX_ORDER_RECEIVES
from tests.plane import shipped_contract

SCHEDULES = st.builds(
    RetrySchedule,
    is_urgent=st.booleans(),
    is_ordered=st.booleans(),
    give_up_after_s=st.integers(60, DAY_S),
    max_receives=st.integers(1, MAX_RECEIVES),
)


def attempts(
    schedule: RetrySchedule, chance: Callable[[], float] = lambda: 0.0, takes_s: float = 0.0
) -> list[float]:
    """When each attempt at an event fails, whose handler always fails after `takes_s`."""
    failed = [0.0]
    while not schedule.is_over(failed[-1]):
        failed.append(failed[-1] + schedule.wait_s(failed[-1], len(failed), chance()) + takes_s)
    return failed


@given(SCHEDULES, st.integers(0, 2**32), st.floats(0, 120))
def test_schedules_end_with_spare_receives(schedule: RetrySchedule, seed: int, takes_s: float) -> None:
    chances = iter(lambda: (seed * 48_271 % 101) / 101, None)
    failed = attempts(schedule, lambda: next(chances), takes_s)
    assert len(failed) <= len(attempts(schedule)) < MAX_RECEIVES - SPARE
    assert schedule.give_up_after_s <= failed[-1] <= schedule.give_up_after_s + FIRST_S + takes_s


@given(SCHEDULES, st.floats(0, 1, exclude_max=True))
def test_waits_grow_with_the_age_up_to_their_limit(schedule: RetrySchedule, chance: float) -> None:
    failed = attempts(schedule, lambda: chance)
    for attempt, (before, after) in enumerate(itertools.pairwise(failed), 1):
        longest_s = LONGEST_S
        if schedule.is_urgent:
            longest_s = URGENT_S if before < URGENT_FOR_S else URGENT_LATER_S
        wait_s = after - before
        assert wait_s + 1e-6 >= FIRST_S
        assert wait_s <= max(FIRST_S, min(longest_s, before)) + 1e-6
        assert before <= schedule.least_age_s(attempt) or chance


@given(SCHEDULES, st.integers(MAX_RECEIVES - SPARE, MAX_RECEIVES - 1), st.floats(0, DAY_S))
def test_the_last_receives_outlast_the_time(schedule: RetrySchedule, attempt: int, age_s: float) -> None:
    while not schedule.is_over(age_s):
        age_s += schedule.wait_s(age_s, attempt, 0.0)
        attempt += 1
    assert attempt <= MAX_RECEIVES


@given(SCHEDULES)
def test_a_message_carries_its_schedule(schedule: RetrySchedule) -> None:
    assert RetrySchedule.read(schedule.hint) == schedule


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "urgent",
        "urgent/none/60",
        "soon/none/60/5",
        "urgent/none/x/5",
        "urgent/none/86401/5",
        "urgent/none/60/0",
    ],
)
def test_what_is_no_schedule_is_ignored(text: str | None) -> None:
    assert RetrySchedule.read(text) is None


def test_an_outage_of_an_hour_ends_nothing_that_has_no_order() -> None:
    for channel in shipped_contract().channels:
        for priority in Priority:
            schedule = schedule_of(channel, priority)
            assert schedule.receives(DAY_S) + channel.max_receives < MAX_RECEIVES - SPARE + 50
            assert most_receives(channel, priority) > schedule.receives(schedule.give_up_after_s)
            if channel.retention_s > 7_200 and channel.ordering is Ordering.NONE:
                assert schedule.receives(3_600) < schedule.receives(schedule.give_up_after_s)
    assert ROUTINE.receives(3_600) < MAX_ORDER_RECEIVES


@pytest.mark.parametrize("is_urgent", [True, False])
def test_receives_beyond_the_schedule_are_told_from_those_in_order(is_urgent: bool) -> None:
    schedule = RetrySchedule(is_urgent)
    assert [schedule.receives(at) for at in (0, 0.9, 1, 2)] == [1, 1, 2, 3]
    failed = attempts(schedule, lambda: 0.5)
    assert all(number <= schedule.receives(at) for number, at in enumerate(failed, 1))
