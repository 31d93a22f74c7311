"""RFC 3339 timestamps and Unix milliseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.values import is_timestamp, timestamp, timestamp_ms, timestamp_of_ms

FIRST_MS = timestamp_ms("0001-01-01T00:00:00Z")
LAST_MS = timestamp_ms("9999-12-31T23:59:59.999Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01t00:00:01.5z", 1_500),
        ("2026-01-01T00:00:00.123456789Z", 1_767_225_600_123),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("0001-01-01T00:00:00+23:59", -62_135_596_800_000 - 86_340_000),
        ("9999-12-31T23:59:60-23:59", 253_402_300_800_000 + 86_340_000),
    ],
)
def test_a_timestamp_of_any_legal_form_is_a_number(text: str, expected: int) -> None:
    assert is_timestamp(text)
    assert timestamp_ms(text) == expected


@given(st.integers(FIRST_MS, LAST_MS))
def test_every_millisecond_is_written_as_a_legal_timestamp_and_read_again(at_ms: int) -> None:
    text = timestamp_of_ms(at_ms)
    assert is_timestamp(text)
    assert text.endswith("Z")
    assert timestamp_ms(text) == at_ms


def test_a_time_of_any_zone_is_written_in_utc() -> None:
    berlin = datetime(2026, 1, 1, 1, 0, 0, 5_999, timezone(timedelta(hours=1)))
    assert timestamp(berlin) == timestamp(berlin.astimezone(UTC)) == "2026-01-01T00:00:00.005Z"
