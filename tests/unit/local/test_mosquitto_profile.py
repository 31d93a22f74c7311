from __future__ import annotations

from pathlib import Path

import pytest

from edge.decision import RECENT_EVENTS
from eventplane_client.mqtt import MAX_MESSAGE_BYTES
from eventplane_mqtt.discovery.profile import limit_warnings
from eventplane_mqtt.endpoint import MAX_PACKET_BYTES
from local.errors import ProfileError
from local.mosquitto import PROFILE, _replace


def test_only_the_named_settings_change() -> None:
    text = "# listener of the device\nlistener 1883 127.0.0.1\npersistence true\n"

    assert _replace(text, {"listener": "2000 127.0.0.1"}) == text.replace("1883", "2000")


def test_a_profile_without_the_setting_is_refused() -> None:
    with pytest.raises(ProfileError, match="exactly one line `listener"):
        _replace("persistence true\n", {"listener": "2000 127.0.0.1"})


def limit(setting: str) -> int:
    (found,) = [line for line in PROFILE.read_text().splitlines() if line.split()[:1] == [setting]]
    return int(found.split()[1])


def test_the_broker_takes_what_a_service_client_sends_and_nothing_that_the_forwarder_cannot_read() -> None:
    assert MAX_MESSAGE_BYTES < limit("max_packet_size") < MAX_PACKET_BYTES
    assert not [line for line in PROFILE.read_text().splitlines() if line.startswith("message_size_limit")]


def test_the_forwarder_has_nothing_to_say_against_the_limits(tmp_path: Path) -> None:
    assert limit_warnings(PROFILE, RECENT_EVENTS, MAX_PACKET_BYTES) == []
    profile = tmp_path / "mosquitto.conf"
    profile.write_text("max_inflight_messages 0\nmessage_size_limit 262144\nlistener 1883\n")
    found = limit_warnings(profile, RECENT_EVENTS, MAX_PACKET_BYTES)
    named = ("max_inflight_messages", "message_size_limit", "max_packet_size", "max_queued_messages")
    assert [name in each for name, each in zip(named, found, strict=True)] == [True] * 4


def test_the_forwarder_remembers_as_many_events_as_can_be_in_flight() -> None:
    assert limit("max_inflight_messages") <= RECENT_EVENTS
    assert RECENT_EVENTS >= 65_535  # the packet ids of one session
