"""Odd profiles: where each leads, or why nowhere."""

from pathlib import Path

import pytest

from eventplane_mqtt.endpoint import DiscoveryError
from eventplane_mqtt.profile import ProfileError, load_profile, read_profile
from lab.tools.device_image import PACKAGING
from parts.discovery.broker import NoListenerError, choose, evaluate
from tests.odd_profiles import ODD_PROFILES, Odd


def filled(text: str, folder: Path) -> str:
    return text.replace("PORT", "1884").replace("OTHER", "1885").replace("FOLDER", str(folder))


def address_of(odd: Odd, folder: Path) -> str:
    (folder / "conf.d").mkdir()
    for name, text in odd.included.items():
        (folder / "conf.d" / name).write_text(filled(text, folder))
    file = folder / "profile"
    file.write_bytes(filled(odd.text, folder).encode())
    return str(choose(load_profile(file), has_login=odd.has_login))


@pytest.mark.source("C9")
@pytest.mark.parametrize("odd", ODD_PROFILES, ids=lambda odd: odd.name)
def test_it_leads_where_mosquitto_listens(odd: Odd, tmp_path: Path) -> None:
    if odd.address is not None:
        assert address_of(odd, tmp_path) == filled(odd.address, tmp_path)
        return
    with pytest.raises(DiscoveryError) as caught:
        address_of(odd, tmp_path)
    assert odd.refusal in str(caught.value)
    assert caught.value.remedy


def test_our_own_profile_leads_to_the_settings_defaults() -> None:
    assert str(choose(load_profile(PACKAGING / "mosquitto.conf"), has_login=False)) == "127.0.0.1:1883"


def test_each_listener_is_accepted_or_rejected_with_a_reason() -> None:
    listeners = read_profile("listener 1884\nlistener 9001\nprotocol websockets\n")
    (here, address), (web, reason) = evaluate(listeners, has_login=False)
    assert [str(here), str(address)] == ["listener 1884 on every address", "127.0.0.1:1884"]
    assert reason == "uses websockets, not plain MQTT"
    with pytest.raises(NoListenerError) as caught:
        choose([web, *read_profile("listener 2\npsk_hint a\n")], has_login=False)
    assert len(caught.value.problem.split("; ")) == 2


@pytest.mark.parametrize("file", ["absent", "."])
def test_a_file_that_cannot_be_read_is_named(file: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=str(tmp_path / file)):
        load_profile(tmp_path / file)


def test_a_file_that_cannot_be_a_profile_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ProfileError, match="more than"):
        load_profile(tmp_path / "disk")
