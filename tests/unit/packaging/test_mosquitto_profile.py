"""What the home's broker must not become by a careless edit; integration tests run it for real."""

from pathlib import Path

from edge.spool.tables import RECENT_EVENTS
from eventplane_client.mqtt import MAX_MESSAGE_BYTES
from eventplane_mqtt.endpoint import MAX_PACKET_BYTES
from eventplane_mqtt.profile import limit_warnings
from lab.tools.device_image import PACKAGING
from parts.simulate.broker import PROFILE, profile_number

LINES = [line.split(maxsplit=1) for line in (PACKAGING / "mosquitto.conf").read_text().splitlines()]
SETTINGS = [(words[0], words[1]) for words in LINES if len(words) == 2 and words[0] != "#"]


def test_only_programs_on_the_device_reach_it() -> None:
    assert [value for name, value in SETTINGS if name == "listener"] == ["1883 127.0.0.1"]
    assert (
        not {"port", "bind_address", "bind_interface", "connection", "bridge_cafile"} & dict(SETTINGS).keys()
    )


def test_nobody_is_outside_the_rules() -> None:
    lines = (PACKAGING / "mosquitto-access.conf").read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    assert (settings["allow_anonymous"], settings["use_username_as_clientid"]) == ("false", "true")
    assert {"password_file", "acl_file"} <= settings.keys()
    # The one line that they replace.
    assert [pair for pair in SETTINGS if pair[0] == "allow_anonymous"] == [("allow_anonymous", "true")]


def test_it_keeps_what_waits_and_wears_out_no_flash() -> None:
    settings = dict(SETTINGS)
    assert settings["persistence"] == "true"
    assert int(settings["autosave_interval"]) >= 10
    assert "autosave_on_changes" not in settings
    # 0 is "no limit" in one version of Mosquitto and "drop everything" in another.
    assert int(settings["max_queued_messages"]) > 1_000
    assert int(settings["max_queued_bytes"]) > 0
    assert settings["queue_qos0_messages"] == "true"


def test_the_broker_bounds_packets() -> None:
    assert MAX_MESSAGE_BYTES < profile_number("max_packet_size") < MAX_PACKET_BYTES
    assert "message_size_limit" not in dict(SETTINGS)


def test_the_forwarder_has_nothing_to_say_against_the_limits(tmp_path: Path) -> None:
    assert limit_warnings(PROFILE, RECENT_EVENTS, MAX_PACKET_BYTES) == []
    assert RECENT_EVENTS >= 65_535  # the packet ids of one session
    profile = tmp_path / "mosquitto.conf"
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "old.conf").write_text("persistent_client_expiration 7d\n")
    profile.write_text(
        f"max_inflight_messages 0\nmessage_size_limit 262144\ninclude_dir {tmp_path}/conf.d\nlistener 1883\n"
    )
    found = limit_warnings(profile, RECENT_EVENTS, MAX_PACKET_BYTES)
    named = ("max_inflight_messages", "message_size_limit", "max_packet_size", "max_queued_messages")
    assert [name in each for name, each in zip(("old.conf:1", *named), found, strict=True)] == [True] * 5
