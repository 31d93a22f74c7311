"""RFC 3339 timestamps, Unix milliseconds and whole numbers."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventplane.dead_letter import Refusal, dead_letter
from eventplane.device_reports import DISCARDED, MANIFEST, forwarder_source
from eventplane.envelope import write_event
from eventplane.report_reader import Report, read_reports
from eventplane.values import is_timestamp, timestamp, timestamp_ms, timestamp_of_ms, whole_number
from eventplane_client.errors import ClientSettingsError
from eventplane_client.settings import host_and_port
from operations.letters import letter_of
from parts.presence.recorder import UnreadableObservationError, read_presence

FIRST_MS = timestamp_ms("0001-01-01T00:00:00Z")
LAST_MS = timestamp_ms("9999-12-31T23:59:59.999Z")
WIDEST_MS = (23 * 60 + 59) * 60_000
"""How far another zone reaches beyond the years that there are in UTC."""


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
        ("9999-12-31T23:59:60Z", 253_402_300_800_000),
        ("2017-01-01t05:29:60.5+05:30", 1_483_228_800_500),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("2023-12-31T23:59:59-00:00", 1_704_067_199_000),
        # Any month may end with a leap second.
        ("2024-02-29T23:59:60Z", 1_709_251_200_000),
        ("2015-06-30T23:59:60z", 1_435_708_800_000),
        ("1990-12-31T15:59:60-08:00", 662_688_000_000),
    ],
)
def test_a_timestamp_of_any_legal_form_is_a_number(text: str, expected: int) -> None:
    assert is_timestamp(text)
    assert timestamp_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2023-02-03T00:00:00",
        "2023-W05-1T00:00:00Z",
        "\u0662023-02-03T00:00:00Z",
        "0000-02-03T00:00:00Z",
        "2023-13-01T00:00:00Z",
        "2023-01-00T00:00:00Z",
        "2023-01-32T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2023-04-31T00:00:00Z",
        "2023-02-03T24:00:00Z",
        "2023-02-03T00:60:00Z",
        "2023-02-03T00:00:61Z",
        "2023-02-03T00:00:00+24:00",
        "2023-02-03T00:00:00+00:60",
        # A leap second is the last of a month in UTC.
        "2016-12-31T23:58:60Z",
        "2016-12-30T23:59:60Z",
        "2024-02-28T23:59:60Z",
        "2026-03-01T10:59:60Z",
        "2016-12-31T23:59:60+01:00",
        "9999-12-31T23:59:60-23:59",
        "0001-01-01T23:58:60+23:59",
        "2023-02-29T23:59:60Z",
    ],
)
def test_anything_else_is_no_timestamp(text: str) -> None:
    assert not is_timestamp(text)


@given(st.integers(FIRST_MS - WIDEST_MS, LAST_MS + WIDEST_MS))
@example(FIRST_MS - 1)
@example(FIRST_MS - WIDEST_MS)
@example(LAST_MS + 1)
@example(LAST_MS + WIDEST_MS)
def test_every_millisecond_is_read_again(at_ms: int) -> None:
    text = timestamp_of_ms(at_ms)
    assert is_timestamp(text)
    assert text.endswith("Z") is (FIRST_MS <= at_ms <= LAST_MS)
    assert timestamp_ms(text) == at_ms


def test_a_time_of_any_zone_is_written_in_utc() -> None:
    berlin = datetime(2026, 1, 1, 1, 0, 0, 5_999, timezone(timedelta(hours=1)))
    assert timestamp(berlin) == timestamp(berlin.astimezone(UTC)) == "2026-01-01T00:00:00.005Z"


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "", "-1", "+1", " 1", "1_0", "\u0661", "0x1", "101", 101, -1, True, 1.0, None]
)
def test_anything_but_a_whole_number_within_the_bound_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a whole number from 0 to 100"):
        whole_number(value, 100)


@pytest.mark.parametrize(("value", "is_"), [("0", 0), ("007", 7), ("100", 100), (100, 100), (0, 0)])
def test_a_whole_number_is_a_text_or_an_integer(value: object, is_: int) -> None:
    assert whole_number(value, 100) == is_


HUGE = "9" * 5_000
"""More digits than Python converts."""


def lifecycle(timestamp: str, version: str = "1") -> str:
    members = {"clientId": "home-1", "principalIdentifier": "a" * 64, "eventType": "connected"}
    text = json.dumps({**members, "sessionIdentifier": "s"})
    return f'{text[:-1]},"timestamp":{timestamp},"versionNumber":{version}}}'


@pytest.mark.parametrize("digits", [HUGE, f'"{HUGE}"', "9" * 100, "1e400", "-1", "null"])
def test_huge_times_and_versions_are_refused(digits: str) -> None:
    for body in (lifecycle(digits), lifecycle("1", version=digits)):
        with pytest.raises(UnreadableObservationError):
            read_presence(body, 0)


@pytest.mark.parametrize("port", [HUGE, "70000"])
def test_a_url_with_a_port_beyond_the_last_is_refused(port: str) -> None:
    with pytest.raises(ClientSettingsError):
        host_and_port(f"//host:{port}", 1883)


@pytest.mark.parametrize("member", ["attempt", "original_bytes"])
@pytest.mark.parametrize("value", [HUGE, 10**900, 1e300, -1])
def test_a_dead_letter_with_a_huge_number_is_no_letter(member: str, value: object) -> None:
    letter = dead_letter(
        id="1",
        source="/s",
        time="2026-01-01T00:00:00Z",
        refusal=Refusal("r", "d"),
        channel="device.outbox",
        original=b"x",
        contract_version="v",
    )
    place = {"place": "q", "id": "m", "since_ms": 0, "body": ""}
    assert letter_of(letter, **place) is not None
    forged = write_event(letter.attributes, {**letter.data(), member: value})
    assert letter_of(forged, **place) is None


REPORTS = {
    MANIFEST: '{"epoch":"e","statements":[{"destination":"cloud","first":%s,"last":9,"count":1}]}',
    DISCARDED: '{"deliveries":[{"destination":"cloud","outcome":"expired","reason":"r","ranges":[[%s,9]]}]}',
}


@pytest.mark.parametrize("type", REPORTS)
@pytest.mark.parametrize("digits", [f'"{HUGE}"', "9" * 900, "1e400", "1.5"])
def test_a_device_report_with_a_huge_number_is_not_understood(type: str, digits: str) -> None:
    for written, count in (("1", 0), (digits, 1)):
        text = f'{{"data":{REPORTS[type] % written}}}'
        report = Report("home-1", True, "", 0, "", type, forwarder_source("home-1"), "1", "e", 1, text)
        read = read_reports([report], ["cloud"])
        assert (len(read.not_understood), read.forged, read.contradictions) == (count, [], [])
