"""Whole numbers from outside: each place that reads one has a bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from eventplane.dead_letter import Refusal, dead_letter
from eventplane.device_reports import DISCARDED, MANIFEST, forwarder_source
from eventplane.downlink.wire import read_version
from eventplane.envelope import write_event
from eventplane.errors import EnvelopeError
from eventplane.function_settings import CertificateSettings
from eventplane.ingest import parse_frame
from eventplane.ordering import position_in
from eventplane.registry.view import BadFlagError, page
from eventplane.settings import SettingsError
from eventplane.values import MAX_TIME_MS, whole_number
from eventplane_client.errors import ClientSettingsError
from eventplane_client.settings import host_and_port
from glue_jobs.delivery_audit.device_reports import Report, read_reports
from lambdas.presence.recorder import UnreadableObservationError, read_presence
from operations.letters import letter_of

HUGE = "9" * 5_000
ENVIRONMENT = {
    "EVENTPLANE_FLEET_TABLE": "fleet",
    "EVENTPLANE_CERTIFICATE_ARNS": "arn",
    "EVENTPLANE_CERTIFICATE_GRACE_S": HUGE,
}
"""More digits than Python converts."""


@pytest.mark.parametrize(
    "value", [HUGE, "", "-1", "+1", " 1", "1_0", "\u0661", "0x1", "101", 101, -1, True, 1.0, None]
)
def test_what_is_no_number_within_the_bound_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a whole number from 0 to 100"):
        whole_number(value, 100)


@pytest.mark.parametrize(("value", "is_"), [("0", 0), ("007", 7), ("100", 100), (100, 100), (0, 0)])
def test_texts_and_integers_are_read(value: object, is_: int) -> None:
    assert whole_number(value, 100) == is_


def frame(timestamp: str) -> str:
    return f'{{"data":"","topic":"t","clientid":"c","timestamp":{timestamp}}}'


def lifecycle(timestamp: str, version: str = "1") -> str:
    members = {"clientId": "home-1", "principalIdentifier": "a" * 64, "eventType": "connected"}
    text = json.dumps({**members, "sessionIdentifier": "s"})
    return f'{text[:-1]},"timestamp":{timestamp},"versionNumber":{version}}}'


@pytest.mark.parametrize("digits", [HUGE, f'"{HUGE}"', "9" * 100, "1e400", "-1", "null"])
def test_a_frame_or_a_lifecycle_message_with_such_a_time_is_none(digits: str) -> None:
    with pytest.raises(EnvelopeError, match="not a frame"):
        parse_frame(frame(digits))
    for body in (lifecycle(digits), lifecycle("1", version=digits)):
        with pytest.raises(UnreadableObservationError):
            read_presence(body, 0)
    assert parse_frame(frame(str(MAX_TIME_MS))).accepted_at_ms == MAX_TIME_MS


REFUSALS: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "environment": (
        lambda: CertificateSettings.read(ENVIRONMENT),
        SettingsError,
    ),
    "page": (lambda: page([], {"limit": HUGE}, "/", "/"), BadFlagError),
    "port": (lambda: host_and_port(f"//host:{HUGE}", 1883), ClientSettingsError),
    "too high a port": (lambda: host_and_port("//host:70000", 1883), ClientSettingsError),
}


@pytest.mark.parametrize("place", REFUSALS)
def test_a_huge_number_is_refused_by_name(place: str) -> None:
    read, error = REFUSALS[place]
    with pytest.raises(error):
        read()


def test_a_huge_number_in_an_event_is_refused() -> None:
    for huge in (HUGE, 10**5_000):
        with pytest.raises(ValueError, match="whole number"):
            read_version(huge)
    assert (
        position_in(
            write_event({"id": "1", "source": "/s", "type": "t", "orderin": f"desk/normal/x/{HUGE}"}), "desk"
        )
        is None
    )


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
    DISCARDED: '{"deliveries":[{"destination":"cloud","outcome":"o","reason":"r","ranges":[[%s,9]]}]}',
}


@pytest.mark.parametrize("type", REPORTS)
@pytest.mark.parametrize("digits", [f'"{HUGE}"', "9" * 900, "1e400", "1.5"])
def test_a_device_report_with_such_a_number_cannot_be_read(type: str, digits: str) -> None:
    for written, said in (("1", []), (digits, ["a report that cannot be read"])):
        text = f'{{"data":{REPORTS[type] % written}}}'
        report = Report("home-1", True, "", 0, "", type, forwarder_source("home-1"), "1", "e", 1, text)
        assert [why for _, why in read_reports([report], ["cloud"]).forged] == said
