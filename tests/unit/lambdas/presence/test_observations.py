"""What the queues of the presence monitor carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.device_reports import HEARTBEAT, MANIFEST, forwarder_source, thing_of
from eventplane.envelope import write_event
from eventplane.traffic import Traffic, traffic_text
from lambdas.presence.recorder import (
    MAX_INTERVAL_S,
    Observation,
    UnreadableObservationError,
    read_heartbeat,
    read_presence,
)
from lambdas.presence.state import DeviceState, Heartbeat, Line, Sighting
from tests.rule_failure import rule_failure
from tests.unit.lambdas.presence.world import CERTIFICATE, START, S, heartbeat, lifecycle

pytestmark = pytest.mark.source("P9")


def test_a_connection_and_its_end_are_read() -> None:
    assert read_presence(lifecycle(Line.CONNECTED, START, 7), 0) == Observation(
        "home-1", Sighting(Line.CONNECTED, START, 7, "session-7")
    )
    assert read_presence(lifecycle(Line.DISCONNECTED, START, 7, cause="AUTH_ERROR"), 0) == Observation(
        "home-1", Sighting(Line.DISCONNECTED, START, 7, "session-7", "AUTH_ERROR")
    )


def test_what_the_rules_error_action_kept_is_read_as_well() -> None:
    body = lifecycle(Line.CONNECTED, START)
    assert read_presence(rule_failure(body.encode()), 0) == read_presence(body, 0)


def test_what_the_archive_counted_is_read() -> None:
    counted = Traffic(window=7, frames=3, events=5, bytes=900)
    assert read_presence(traffic_text("home-1", counted), 0) == Observation("home-1", counted)


@pytest.mark.parametrize("traffic", [None, {}, {"window": "soon"}, 7])
def test_a_count_that_cannot_be_read_is_refused(traffic: Any) -> None:
    with pytest.raises(UnreadableObservationError):
        read_presence(json.dumps({"device": "home-1", "traffic": traffic}), 0)


@pytest.mark.parametrize(
    "others",
    [
        {"clientId": "claim-home-1"},
        {"clientId": "renewal-home-1"},
        {"clientId": "a/b"},
        {"clientId": ""},
        {"principalIdentifier": "AROAEXAMPLE:somebody"},
    ],
)
def test_who_is_no_device_is_not_watched(others: dict[str, str]) -> None:
    assert read_presence(lifecycle(Line.CONNECTED, START, **others), 0) is None


def test_a_connection_that_was_refused_is_no_news_of_a_line() -> None:
    refused = {
        "clientId": "home-1",
        "timestamp": START,
        "eventType": "connect_failed",
        "connectFailureReason": "AUTHORIZATION_FAILED",
        "principalIdentifier": CERTIFICATE,
        "ipAddress": "192.0.2.1",
    }
    assert read_presence(json.dumps(refused), 0) is None


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"base64OriginalPayload": "?"}',
        '{"base64OriginalPayload": 7}',
        lifecycle(Line.CONNECTED, START, eventType="subscribed"),
        lifecycle(Line.CONNECTED, START, versionNumber="first"),
        lifecycle(Line.CONNECTED, START, timestamp=None),
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_what_is_no_lifecycle_message_is_told(body: str) -> None:
    with pytest.raises(UnreadableObservationError, match="not a lifecycle message"):
        read_presence(body, 0)


def test_a_heartbeat_is_read_and_has_the_clouds_time() -> None:
    assert read_heartbeat(heartbeat(3, oldest_urgent_s=1.5, oldest_normal_s=2), START) == Observation(
        "home-1", Heartbeat(START, 300.0, 1.5, 2.0, "epoch", "000000000003")
    )


@pytest.mark.parametrize("interval_s", [None, "often", -1, [], 0, True, 10**400])
def test_a_heartbeat_with_senseless_figures_is_a_heartbeat(interval_s: Any) -> None:
    body = heartbeat(1, interval_s=interval_s, oldest_urgent_s="old", oldest_normal_s={})
    observed = read_heartbeat(body, START)
    assert observed is not None
    assert isinstance(observed.said, Heartbeat)
    assert observed.said.interval_s in (0, 1)
    assert (observed.said.oldest_urgent_s, observed.said.oldest_normal_s) == (0, 0)


@pytest.mark.parametrize("data", [None, 7, [], {"interval_s": 300, "figures": 7}])
def test_a_heartbeat_without_figures_is_a_heartbeat(data: Any) -> None:
    names = {"id": "1", "source": forwarder_source("a"), "senderdevice": "a"}
    event = write_event({**names, "type": HEARTBEAT}, data)
    assert read_heartbeat(event.json, START) is not None


def test_nobody_hides_for_years_behind_a_long_interval() -> None:
    observed = read_heartbeat(heartbeat(1, interval_s=1e9), START)
    assert observed is not None
    assert observed.said == Heartbeat(START, MAX_INTERVAL_S, 0, 0, "epoch", "000000000001")


@pytest.mark.parametrize(
    ("type", "source", "device"),
    [
        (MANIFEST, forwarder_source("home-1"), "home-1"),
        (HEARTBEAT, "/homes/1", "home-1"),
        (HEARTBEAT, "/devices//forwarder", ""),
        (HEARTBEAT, "/devices/a%20b/forwarder", "a%20b"),
        # Another's home would seem to be well.
        (HEARTBEAT, forwarder_source("home-2"), "home-1"),
        (HEARTBEAT, forwarder_source("home-2"), ""),
    ],
)
def test_other_events_are_nobodys_heartbeat(type: str, source: str, device: str) -> None:
    names = {"id": "1", "source": source, "type": type, "senderservice": "device"}
    event = write_event(names | ({"senderdevice": device} if device else {}))
    assert read_heartbeat(event.json, START) is None


def test_what_is_no_event_is_told() -> None:
    with pytest.raises(UnreadableObservationError, match="not an event"):
        read_heartbeat("?", START)


def test_a_forwarders_source_names_its_thing() -> None:
    assert thing_of(forwarder_source("home-1")) == "home-1"


def test_a_late_or_repeated_heartbeat_changes_nothing() -> None:
    def beat(sequence: int, at_ms: int, **figures: Any) -> Observation:
        observed = read_heartbeat(heartbeat(sequence, **figures), at_ms)
        assert observed is not None
        return observed

    state = beat(7, START).apply(DeviceState("home-1"))
    assert beat(6, START + S).apply(state) is state
    assert beat(7, START + S).apply(state) is state
    assert beat(8, START + S).apply(state) is not state
    reborn = Observation("home-1", Heartbeat(START + S, 300.0, epoch="another", sequence="000000000001"))
    assert reborn.apply(state).heartbeat == reborn.said
    assert beat(8, START).apply(reborn.apply(state)).heartbeat == reborn.said
