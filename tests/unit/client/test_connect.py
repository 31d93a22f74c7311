"""How a client is configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import (
    AlreadySubscribedError,
    ClientSettingsError,
    ClosedError,
    NothingThereError,
    NotRegisteredError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
    UnroutedError,
)
from eventplane_client.settings import host_and_port
from tests.unit.client.worlds import event

ENVIRONMENT = {
    "EVENTPLANE_CLIENT_PARTICIPANT": "desk",
    "EVENTPLANE_CLIENT_TRANSPORT": "memory:settings",
    "EVENTPLANE_CLIENT_MODE": "at_least_once",
    "EVENTPLANE_CLIENT_WINDOW": "500",
    "EVENTPLANE_CLIENT_GAP_TIMEOUT_S": "2.5",
}


@pytest.mark.source("P13", "N1")
def test_the_environment_says_everything() -> None:
    assert ClientSettings.read(ENVIRONMENT) == ClientSettings(
        "desk", "memory:settings", mode=Mode.AT_LEAST_ONCE, window=500, gap_timeout_s=2.5
    )


def test_a_transport_and_a_name_are_enough_and_the_environment_has_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EVENTPLANE_CLIENT_TRANSPORT", "memory:elsewhere")
    rings = {"exact": {"type": "ring"}}
    with connect("memory:given", "bell") as bell, connect("memory:given", mode=Mode.EXACTLY_ONCE) as desk:
        assert (bell.participant, desk.participant) == ("bell", "desk")
        with desk.subscribe(rings) as inbox:
            bell.put(event("ring", type="ring"))
            assert inbox.get(0).id == "ring"
    with connect(ClientSettings("desk", "memory:given"), "porter") as porter:
        assert porter.participant == "porter"
    with pytest.raises(ClientSettingsError, match="'mode': 'twice' is not known"):
        connect("memory:given", mode="twice")


@pytest.mark.source("P14")
def test_a_service_in_a_home_has_its_state_on_the_disk_once_it_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with connect("mqtt://127.0.0.1:1", "call-service") as client:
        assert not [*tmp_path.iterdir()]
        client.subscribe()
        assert (tmp_path / "eventplane" / "call-service.db").is_file()
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    with (
        connect("mqtt://127.0.0.1:1", "call-service") as client,
        pytest.raises(ClientSettingsError, match="name a file that can be written"),
    ):
        client.subscribe()


def test_only_a_device_keeps_states() -> None:
    with connect("memory:states", "desk") as desk:
        with pytest.raises(UnavailableError, match="only a device keeps states"):
            desk.state("setting/climate/target")
        desk.close()
        with pytest.raises(ClosedError):
            desk.state("setting/climate/target")


@pytest.mark.source("F5")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PARTICIPANT", None),
        ("MODE", "twice"),
        ("WINDOW", "many"),
        ("MAX_RECEIVES", "0"),
        ("GAP_TIMEOUT_S", "nan"),
    ],
)
def test_what_is_wrong_is_named(variable: str, value: str | None) -> None:
    environment = dict(ENVIRONMENT)
    environment.pop(f"EVENTPLANE_CLIENT_{variable}", None)
    if value is not None:
        environment[f"EVENTPLANE_CLIENT_{variable}"] = value
    with pytest.raises(ClientSettingsError) as wrong:
        ClientSettings.read(environment)
    assert wrong.value.setting == variable.lower()


@pytest.mark.parametrize(
    ("transport", "state"),
    [
        ("carrier-pigeon:", ""),
        ("memory", ""),
        ("memory:x", "stone:"),
        ("memory:x", "sqlite:"),
    ],
)
def test_an_unknown_backend_is_refused(transport: str, state: str) -> None:
    with pytest.raises(ClientSettingsError):
        connect(ClientSettings("desk", transport, state=state))


@pytest.mark.source("F1", "F3", "F5")
def test_subscribers_get_what_passes_their_filter_from_then_on(tmp_path: Path) -> None:
    state = f"sqlite:{tmp_path / 'state.db'}"
    with (
        connect(ClientSettings("desk", "memory:routes", state=state)) as desk,
        connect(ClientSettings("bell", "memory:routes")) as bell,
    ):
        with pytest.raises(UnroutedError):
            bell.put(event("before", type="ring"))
        rings = {"exact": {"type": "ring"}}
        with desk.subscribe(rings, name="rings") as inbox:
            bell.put(event("ring", type="ring"))
            with pytest.raises(UnroutedError):
                bell.put(event("other", type="battery"))
            assert inbox.get(0).id == "ring"
            with pytest.raises(NothingThereError):
                inbox.get(0)
            desk.subscribe(rings, name="rings")  # the same again is the same
            with pytest.raises(AlreadySubscribedError):
                desk.subscribe({"exact": {"type": "battery"}}, name="rings")
            desk.unsubscribe("rings")
            with pytest.raises(UnroutedError):
                bell.put(event("after", type="ring"))
            with pytest.raises(NotRegisteredError):
                inbox.get(0)
        with pytest.raises(NotSubscribedError):
            desk.unsubscribe("rings")
        with pytest.raises(SubscriptionError) as wrong:
            desk.subscribe({"sql": "type = ("}, name="wrong")
        assert wrong.value.problems[0].path == "filter.sql"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("//home", ("home", 1883)),
        ("//127.0.0.1:1884", ("127.0.0.1", 1884)),
        ("//[::1]:1884", ("::1", 1884)),
        ("//[::1]", ("::1", 1883)),
        ("///run/mqtt.sock", ("/run/mqtt.sock", 1883)),
    ],
)
def test_a_broker_has_an_address_of_any_family(address: str, found: tuple[str, int]) -> None:
    assert host_and_port(address, 1883) == found
