"""Whole numbers that services, devices and AWS send: each place that reads one has a bound."""

import json

import pytest

from eventplane.dead_letter import Refusal, dead_letter
from eventplane.device_reports import DISCARDED, MANIFEST, forwarder_source
from eventplane.envelope import write_event
from eventplane.report_reader import Report, read_reports
from eventplane_client.errors import ClientSettingsError
from eventplane_client.settings import host_and_port
from operations.letters import letter_of
from parts.presence.recorder import UnreadableObservationError, read_presence

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
