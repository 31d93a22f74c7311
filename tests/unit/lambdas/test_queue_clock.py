"""What time it is for a router whose machine says another time than its queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Contract
from eventplane.sqs_binding import CLOCK_TOLERANCE_MS, QueueClock
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from tests.unit.lambdas.support import ALARM, NOW_MS, Cloud, event, frame, invocation, ledger_of, message

MINUTE_MS = 60_000


def received(at_ms: int | None, attempt: int = 1) -> QueueMessage:
    return replace(message("m1", "", attempt), received_at_ms=at_ms)


@pytest.mark.parametrize("ahead_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_a_clock_that_is_wrong_is_corrected(ahead_ms: int) -> None:
    clock = QueueClock(lambda: NOW_MS + ahead_ms)
    clock.observe([received(NOW_MS - 30_000), received(NOW_MS), received(None)])
    assert (clock(), clock.skew_ms) == (NOW_MS, ahead_ms)
    # What was received before says nothing of the present, and what was once known holds meanwhile.
    clock.observe([received(NOW_MS - MINUTE_MS, attempt=2)])
    assert clock() == NOW_MS


def test_what_a_function_takes_to_start_is_no_error_of_the_clock() -> None:
    clock = QueueClock(lambda: NOW_MS)
    for waited_ms in (0, CLOCK_TOLERANCE_MS, -CLOCK_TOLERANCE_MS):
        clock.observe([received(NOW_MS - waited_ms)])
        assert (clock(), clock.skew_ms) == (NOW_MS, 0)


def test_a_clock_that_is_right_again_is_believed_again() -> None:
    now_ms = NOW_MS + 10 * MINUTE_MS
    clock = QueueClock(lambda: now_ms)
    clock.observe([received(NOW_MS)])
    now_ms = NOW_MS
    clock.observe([received(NOW_MS)])
    assert (clock(), clock.skew_ms) == (NOW_MS, 0)


@given(
    st.integers(-(10**8), 10**8),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=10),
)
def test_it_is_never_later_than_it_is_but_for_the_tolerance(ahead_ms: int, waited_ms: list[int]) -> None:
    clock = QueueClock(lambda: NOW_MS + ahead_ms)
    clock.observe([received(NOW_MS - each) for each in waited_ms])
    assert NOW_MS - min(waited_ms) - CLOCK_TOLERANCE_MS <= clock() <= NOW_MS + CLOCK_TOLERANCE_MS


@pytest.mark.parametrize(("minutes", "arrives"), [(5, True), (-1, False)])
def test_a_router_ten_minutes_ahead_expires_what_is_over_and_nothing_else(
    cloud: Cloud, contract: Contract, minutes: int, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.service.count", lambda metric: counted.append(metric))
    engine = build_engine(contract, "device.outbox", cloud.queues)
    router = RouterService(
        engine=lambda: engine,
        dispatch=Dispatch(SqsSender(cloud.sqs), cloud.queues),
        ledger=ledger_of(cloud),
        clock=lambda: NOW_MS + 10 * MINUTE_MS,
    )
    alarm = event("1", ALARM, expirytime=timestamp_of_ms(NOW_MS + minutes * MINUTE_MS))
    sent = replace(message("m1", frame(alarm.json.encode())), received_at_ms=NOW_MS)
    assert router.process([sent], invocation()) == frozenset()

    assert len(cloud.received("alarm-centre.inbox")) == arrives
    lines = cloud.decisions()
    assert {each["outcome"] for each in lines} == {"delivered" if arrives else "expired"}
    assert {(each["decided_at_ms"], each["received_at_ms"]) for each in lines} == {(NOW_MS, NOW_MS)}
    assert counted == ["ClockSkew"]
