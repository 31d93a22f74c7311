"""What time it is for a router whose machine says another time than its queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.sqs_binding import CLOCK_TOLERANCE_MS, QueueClock
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import QueueMessage
from tests.unit.lambdas.support import ALARM, NOW_MS, Cloud, event, frame, message

MINUTE_MS = 60_000


def received(at_ms: int | None, attempt: int = 1) -> QueueMessage:
    return replace(message("m1", "", attempt), received_at_ms=at_ms)


@pytest.mark.parametrize("ahead_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_a_clock_that_is_wrong_is_corrected_until_it_is_right_again(ahead_ms: int) -> None:
    now_ms = NOW_MS + ahead_ms
    clock = QueueClock(lambda: now_ms)
    clock.observe([received(NOW_MS - 30_000), received(NOW_MS), received(None)])
    assert (clock(), clock.skew_ms) == (NOW_MS, ahead_ms)
    # What was received before says nothing of the present, and what was once known holds meanwhile.
    clock.observe([received(NOW_MS - MINUTE_MS, attempt=2)])
    assert clock() == NOW_MS
    now_ms = NOW_MS
    clock.observe([received(NOW_MS)])
    assert (clock(), clock.skew_ms) == (NOW_MS, 0)


@given(st.integers(-(10**8), 10**8), st.lists(st.integers(0, 10**6), min_size=1, max_size=10))
def test_it_is_never_later_than_it_is_but_for_the_tolerance(ahead_ms: int, waited_ms: list[int]) -> None:
    clock = QueueClock(lambda: NOW_MS + ahead_ms)
    clock.observe([received(NOW_MS - each) for each in waited_ms])
    assert NOW_MS - min(waited_ms) - CLOCK_TOLERANCE_MS <= clock() <= NOW_MS + CLOCK_TOLERANCE_MS


def test_what_a_function_takes_to_start_is_no_error_of_the_clock() -> None:
    clock = QueueClock(lambda: NOW_MS)
    for waited_ms in (CLOCK_TOLERANCE_MS, -CLOCK_TOLERANCE_MS):
        clock.observe([received(NOW_MS - waited_ms)])
        assert (clock(), clock.skew_ms) == (NOW_MS, 0)


@pytest.mark.parametrize(("minutes", "outcome"), [(5, "delivered"), (-1, "expired")])
def test_a_router_ten_minutes_ahead_expires_what_is_over_and_nothing_else(
    cloud: Cloud, minutes: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.service.count", counted.append)
    alarm = event("1", ALARM, expirytime=timestamp_of_ms(NOW_MS + minutes * MINUTE_MS))
    cloud.clock.now_ms += 10 * MINUTE_MS
    assert cloud.route(replace(message("m1", frame(alarm)), received_at_ms=NOW_MS)) == frozenset()
    rows = cloud.ledger_rows("outcome", "decided_at_ms", "received_at_ms")
    assert (rows, counted) == ([(outcome, NOW_MS, NOW_MS)] * 2, ["ClockSkew"])
