"""What an endpoint's answer means, and how long an event then waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.reasons import Reason
from lambdas.http_sink.delivery import Failure, Pace, judge
from lambdas.http_sink.endpoint import EndpointResponse
from tests.unit.lambdas.support import NOW_MS


def judged(status: int, **headers: str) -> Failure:
    failure = judge(EndpointResponse(status, "Words", headers, "because"), NOW_MS)
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        *((status, Reason.ENDPOINT_REFUSED) for status in (400, 405, 413, 415, 422, 499)),
        (301, Reason.ENDPOINT_MOVED),
        (308, Reason.ENDPOINT_MOVED),
    ],
)
def test_a_refusal_or_a_move_is_permanent(status: int, reason: str) -> None:
    failure = judged(status)
    assert (failure.reason, failure.status, failure.is_permanent) == (reason, status, True)
    assert failure.detail.startswith(f"HTTP {status} Words: because")
    moved = judged(status, location="https://new.example/").detail
    assert moved.endswith("(to https://new.example/)") is (reason == Reason.ENDPOINT_MOVED)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        *((each, Reason.ENDPOINT_FAILED) for each in (408, 425, 429, 500, 501, 502, 503, 504, 599)),
        *((each, Reason.ENDPOINT_FAILED) for each in (302, 303, 307, 101, 999)),
        # What a receiver says while it is deployed.
        *((each, Reason.ENDPOINT_REFUSED) for each in (401, 403, 404, 409, 421, 423)),
    ],
)
def test_2xx_is_a_delivery_and_any_other_status_is_tried_again(status: int, reason: str) -> None:
    assert judge(EndpointResponse(200 + status % 100, "", {}, ""), NOW_MS) is None
    failure = judged(status)
    assert (failure.reason, failure.is_permanent) == (reason, False)
    assert failure.is_general is (status in (429, 503))
    assert judged(status, **{"retry-after": "7"}).is_general


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("99999999999999999999", 999_999_999),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120),
        ("Thu, 01 Jan 2026 00:02:00 -0000", None),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0),
        ("Thu, 99 Jan 2026 00:02:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    if value.endswith("-0000"):
        # A time without a place is this machine's; Lambda's is UTC.
        assert judged(503, **{"retry-after": value}).retry_after_s is not None
    else:
        assert judged(503, **{"retry-after": value}).retry_after_s == seconds


@given(st.text(max_size=40))
def test_any_retry_after_is_accepted(value: str) -> None:
    seconds = judged(429, **{"retry-after": value}).retry_after_s
    assert seconds is None or seconds >= 0


def test_a_rate_is_shared_by_the_processes() -> None:
    now_ms = 1_000_000
    pace = Pace(60, 2, lambda: now_ms)
    assert pace.wait_ms() == 0
    pace.take()
    assert pace.wait_ms() == 2_000
    without = Pace(None, 2, lambda: now_ms)
    without.take()
    assert without.wait_ms() == 0
    now_ms += 1_500
    assert pace.wait_ms() == 500
    now_ms += 500
    assert pace.wait_ms() == 0
    # A clock that was set back does not stop deliveries for longer than the interval.
    now_ms -= 3_600_000
    assert pace.wait_ms() == 2_000
