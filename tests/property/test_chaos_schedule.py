"""A schedule of faults is the seed's alone, keeps to its time, and is as crowded as its mode says."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.chaos.schedule import (
    Mode,
    Pace,
    PlannedFault,
    ScheduleError,
    every,
    schedule,
)

KINDS = st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=6, unique=True)
PACES = st.builds(
    lambda shortest, more, calm: Pace(shortest, shortest + more, calm),
    st.floats(0.1, 3),
    st.floats(0, 3),
    st.floats(0, 5),
)
RUNS = st.tuples(st.integers(), KINDS, st.integers(1, 5), st.floats(20, 200), st.sampled_from(Mode), PACES)


@given(RUNS)
def test_the_same_seed_gives_the_same_strikes_within_the_time(
    run: tuple[int, list[str], int, float, Mode, Pace],
) -> None:
    _, kinds, homes, seconds, _, pace = run
    strikes = schedule(*run)
    assert strikes == schedule(*run)
    assert list(strikes) == sorted(strikes, key=lambda each: each.at_s)
    for strike in strikes:
        assert pace.calm_s - 0.001 <= strike.at_s < strike.until_s <= seconds
        assert strike.kind in kinds
        assert 0 <= strike.home < homes


@given(st.integers(), KINDS)
def test_every_pair_has_its_turn_before_one_comes_again(seed: int, kinds: list[str]) -> None:
    pairs = len(kinds) * (len(kinds) - 1) // 2
    strikes = schedule(seed, kinds, 1, 4 * pairs + 4, Mode.PAIRS, Pace(1, 1, 1))
    first = [frozenset(each.kind for each in strikes[at : at + 2]) for at in range(0, 2 * pairs, 2)]
    assert len(set(first)) == pairs


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
