from __future__ import annotations

import pytest

from eventplane_client.device import MAX_MESSAGE_BYTES
from local.errors import ProfileError
from local.mosquitto import PROFILE, _replace


def test_only_the_named_settings_change() -> None:
    text = "# listener of the device\nlistener 1883 127.0.0.1\npersistence true\n"

    assert _replace(text, {"listener": "2000 127.0.0.1"}) == text.replace("1883", "2000")


def test_a_profile_without_the_setting_is_refused() -> None:
    with pytest.raises(ProfileError, match="exactly one line `listener"):
        _replace("persistence true\n", {"listener": "2000 127.0.0.1"})


def test_the_device_listens_on_the_loopback_only() -> None:
    listeners = [line for line in PROFILE.read_text().splitlines() if line.startswith("listener ")]

    assert [line.split()[-1] for line in listeners] == ["127.0.0.1"]


def test_the_service_client_knows_what_the_broker_drops() -> None:
    assert f"message_size_limit {MAX_MESSAGE_BYTES}" in PROFILE.read_text().splitlines()
