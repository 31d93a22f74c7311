"""What the home's broker must not become by a careless edit; integration tests run it for real."""

from __future__ import annotations

from tools.device_image import PACKAGING

LINES = [line.split(maxsplit=1) for line in (PACKAGING / "mosquitto.conf").read_text().splitlines()]
SETTINGS = [(words[0], words[1]) for words in LINES if len(words) == 2 and words[0] != "#"]


def test_only_programs_on_the_device_reach_it() -> None:
    assert [value for name, value in SETTINGS if name == "listener"] == ["1883 127.0.0.1"]
    assert (
        not {"port", "bind_address", "bind_interface", "connection", "bridge_cafile"} & dict(SETTINGS).keys()
    )


def test_the_rules_that_keep_services_apart_leave_nobody_out_of_them() -> None:
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
