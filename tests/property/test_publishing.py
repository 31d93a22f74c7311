"""The pace never exceeds its budgets in any second, keeps room for what is urgent, and never stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.publishing import URGENT_SHARE, Pace

PUBLISHES, BYTES = 10, 1_000

some_publishes = st.lists(
    st.tuples(st.floats(0, 0.7), st.integers(1, BYTES), st.booleans(), st.sampled_from([False] * 9 + [True])),
    max_size=80,
)


def sent(steps: list[tuple[float, int, bool, bool]]) -> list[tuple[float, int, bool]]:
    """When each publish went, its size and whether it was urgent, with a pump that asks as soon as it may."""
    pace, now, log = Pace(PUBLISHES, BYTES), 50.0, []
    for gap, size, urgent, complaint in steps:
        now += gap
        if complaint:
            pace.slow_down(now)
        while (ready := pace.ready_at(size, now, urgent=urgent)) > now:
            now = ready
        pace.take(size, now)
        log.append((now, size, urgent))
    return log


@given(some_publishes)
def test_no_second_holds_more_than_the_budgets(steps: list[tuple[float, int, bool, bool]]) -> None:
    log = sent([(gap, size, urgent, False) for gap, size, urgent, _ in steps])
    for start, _, _ in log:
        window = [(size, urgent) for at, size, urgent in log if start <= at < start + 1.0]
        assert len(window) <= PUBLISHES
        assert sum(size for size, _ in window) <= BYTES


@given(some_publishes)
def test_ordinary_ones_leave_the_urgent_share(steps: list[tuple[float, int, bool, bool]]) -> None:
    ordinary = [(gap, min(size, 900), False, False) for gap, size, _, _ in steps]
    log = sent(ordinary)
    pace = Pace(PUBLISHES, BYTES)
    for at, size, _ in log:
        pace.take(size, at)
        assert pace.ready_at(round(BYTES * URGENT_SHARE), at, urgent=True) == at


@given(some_publishes)
def test_it_goes_on_whatever_the_complaints(steps: list[tuple[float, int, bool, bool]]) -> None:
    log = sent(steps)
    waited = log[-1][0] - 50.0 if log else 0.0
    # The slowest pace is a sixteenth: the dearest publish holds it for 16 s.
    assert waited <= sum(gap + 18.0 for gap, *_ in steps)


def test_what_is_larger_than_the_budget_goes_and_holds_it_for_longer() -> None:
    pace = Pace(PUBLISHES, BYTES)
    assert pace.ready_at(3_000, 0.0, urgent=False) == 0.0
    pace.take(3_000, 0.0)
    assert pace.ready_at(1, 0.0, urgent=True) == 3.0


def test_a_complaint_halves_the_pace_which_recovers_within_a_minute() -> None:
    pace = Pace(PUBLISHES, BYTES)
    for _ in range(3):
        pace.slow_down(10.0)  # three refusals at once are one complaint
    assert (pace.share(10.0), pace.slowed) == (0.5, 1)
    pace.slow_down(11.0)
    assert pace.share(11.0) == pytest.approx(0.258, abs=0.001)
    for second in range(12, 40):
        pace.slow_down(float(second))
    assert 1 / 16 <= pace.share(39.0) < 0.1
    assert pace.share(100.0) == 1.0
