"""A home whose broker moves: forwarder and services find it again by its profile."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventplane_client import ClientSettings, Mode, connect, connection
from eventplane_mqtt import PinnedCertificate
from eventplane_mqtt.discovery import broker as discovered
from eventplane_mqtt.mailbox import Disconnected
from local.certificates import Authority
from local.mosquitto import Broker
from local.ports import free_port, is_listening
from local.process import Child, Supervisor
from tests.integration.edge.conftest import CloudBroker, Home, MakeHome, event, wait_for
from tests.integration.edge.probe import Probe
from tests.integration.edge.test_operations import health, problems
from tests.integration.edge.test_profiles import MOSQUITTO

CHECK_EVERY_S = 0.5
LOOK_OFTEN = f"""
from edge.__main__ import program
from eventplane_mqtt.discovery import broker
broker.CHECK_EVERY_S = {CHECK_EVERY_S}
program()
"""
"""The forwarder, which looks at the profile ten times as often."""


@dataclass
class Movable:
    """A home whose forwarder knows the profile and a port where nobody is."""

    home: Home
    profile: Path
    supervisor: Supervisor
    folder: Path

    def rewrite(self, listener: str) -> None:
        """Another listener in the profile, which nobody has told Mosquitto of."""
        lines = self.profile.read_text().splitlines()
        changed = [f"listener {listener}" if line.startswith("listener") else line for line in lines]
        self.profile.write_text("\n".join([*changed, ""]))

    def start_broker(self, name: str, ready: Callable[[], bool]) -> Child:
        """A Mosquitto with the profile as it is now."""
        return self.supervisor.start(name, [MOSQUITTO, "-c", str(self.profile)], ready=ready)

    def connections(self) -> int:
        return self.home.log().count("local broker connected")


@pytest.fixture
def movable(
    make_home: MakeHome,
    supervisor: Supervisor,
    mosquitto: Callable[[str], Broker],
    tmp_path: Path,
    cloud: CloudBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> Movable:
    monkeypatch.setattr(discovered, "CHECK_EVERY_S", CHECK_EVERY_S)  # of the services
    broker = mosquitto("home")
    profile = tmp_path / "home" / "mosquitto.conf"
    # Nobody is at the settings' own port: it has to come from the profile.
    elsewhere = Broker(free_port(), broker.child)
    local = {"profile": str(profile)}
    home = make_home(cloud.port, broker=elsewhere, local=local, program=("-c", LOOK_OFTEN))
    return Movable(home, profile, supervisor, tmp_path)


def is_listening_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(path)) == 0


@pytest.mark.parametrize("kind", ["port", "unix socket", "tls"])
def test_a_broker_that_starts_again_elsewhere_is_found(
    movable: Movable, cloud: CloudBroker, authority: Authority, kind: str
) -> None:
    service = movable.home.transport("health-service", profile=movable.profile)
    service.put(event(1), 60)
    movable.home.broker.child.stop()
    port, path = free_port(), movable.folder / "mqtt.sock"
    if kind == "unix socket":
        movable.rewrite(f"0 {path}")
    elif kind == "tls":
        server = authority.issue("broker.home")
        movable.rewrite(f"{port} 127.0.0.1\ncertfile {server.certificate}\nkeyfile {server.key}")
    else:
        movable.rewrite(f"{port} 127.0.0.1")
    movable.start_broker(
        "moved", lambda: is_listening_at(path) if kind == "unix socket" else is_listening(port)
    )
    service.put(event(2), 60)
    wait_for(lambda: cloud.has({"e1", "e2"}))


def test_a_service_trusts_the_certificate_it_was_given_and_no_other(
    movable: Movable, cloud: CloudBroker, authority: Authority
) -> None:
    movable.home.broker.child.stop()
    port, server = free_port(), authority.issue("broker.home")
    movable.rewrite(f"{port} 127.0.0.1\ncertfile {server.certificate}\nkeyfile {server.key}")
    movable.start_broker("moved", lambda: is_listening(port))
    with connect(
        f"mqtt://127.0.0.1:{port}", "health-service", certificate=str(server.certificate)
    ) as service:
        service.put(event(1), 60)
    wait_for(lambda: cloud.has({"e1"}))
    stranger = authority.issue("stranger")
    refused = Probe(port, tls=PinnedCertificate(stranger.certificate)).next(Disconnected).reason
    assert "certificate verify failed" in refused


@pytest.mark.source("C9")
def test_the_client_library_finds_the_broker_too(movable: Movable, cloud: CloudBroker) -> None:
    settings = ClientSettings("health-service", f"mqtt-profile:{movable.profile}", mode=Mode.AT_LEAST_ONCE)
    with connect(settings) as client:
        client.put(event(1), 60)
    wait_for(lambda: cloud.has({"e1"}))


@pytest.mark.source("C9")
def test_a_client_with_nothing_configured_finds_the_broker_of_its_device(
    movable: Movable, cloud: CloudBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connection, "DEFAULT_PROFILE", movable.profile)
    for name in [each for each in os.environ if each.startswith("EVENTPLANE_CLIENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EVENTPLANE_CLIENT_PARTICIPANT", "health-service")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    with connect() as client, client.subscribe():
        client.put(event(1), 60)
    wait_for(lambda: cloud.has({"e1"}))
    assert (tmp_path / "state" / "health-service.db").is_file()


def test_a_broken_profile_changes_nothing_and_is_told(movable: Movable, cloud: CloudBroker) -> None:
    home = movable.home
    service = home.transport("health-service", profile=movable.profile)
    service.put(event(1), 60)
    good = movable.folder / "good.conf"
    shutil.copy(movable.profile, good)
    port = next(line.split()[1] for line in good.read_text().splitlines() if line.startswith("listener"))
    movable.rewrite("70000")
    # Asking wakes the loop, which looks at the profile then.
    wait_for(lambda: "profile_refused" in problems(home))
    assert f"127.0.0.1:{port} remains" in home.log()
    assert health(home)["status"] == "degraded"
    service.put(event(2), 60)
    home.broker.child.stop()
    movable.supervisor.start("again", [MOSQUITTO, "-c", str(good)], ready=lambda: is_listening(int(port)))
    service.put(event(3), 60)
    wait_for(lambda: cloud.has({"e1", "e2", "e3"}))
    shutil.copy(good, movable.profile)
    wait_for(lambda: problems(home) == [])


def test_who_stands_with_a_broker_that_was_left_follows_the_profile(movable: Movable) -> None:
    home = movable.home
    before, port = movable.connections(), free_port()
    movable.rewrite(f"{port} 127.0.0.1")
    # The profile leads to nobody yet: the former broker, which still runs, keeps the forwarder.
    wait_for(lambda: health(home) != {} and movable.connections() > before)
    assert "Connection refused" in home.log()
    movable.start_broker("beside", lambda: is_listening(port))
    home.broker.child.stop()
    service = home.transport("health-service", profile=movable.profile)
    service.put(event(1), 60)
