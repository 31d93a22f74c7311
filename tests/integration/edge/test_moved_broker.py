"""Profiles lead where Mosquitto answers, also after it moved."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventplane_client import connect, connection
from eventplane_mqtt import PinnedCertificate
from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.mailbox import Connected, Disconnected
from eventplane_mqtt.profile import load_profile
from lab.mosquitto import Broker, find_mosquitto
from lab.network import free_port, is_listening
from lab.process import Child, Supervisor
from lab.things import Authority
from parts.discovery import broker as discovered
from parts.discovery.broker import choose
from tests.integration.edge.conftest import Home, MakeHome, RecordingCloud, event, wait_for
from tests.listeners import BY_DESIGN
from tests.odd_profiles import ODD_PROFILES, Odd
from tests.unit.eventplane_mqtt.probe import Probe

IS_2_0 = (
    "version 2.0"
    in subprocess.run([find_mosquitto(), "-h"], capture_output=True, text=True, check=False).stdout
)
TAKEN = [each for each in ODD_PROFILES if IS_2_0 or not each.only_2_0]
READ = [each for each in TAKEN if each.address and each.runs]
REFUSED = [each for each in TAKEN if not each.address and each.mosquitto_refuses]


def write_profile(odd: Odd, folder: Path) -> tuple[Path, Callable[[str], str]]:
    """The file, and how what stands in a text for a port or folder is filled in."""
    port, other = free_port(), free_port()
    BY_DESIGN.update((port, other))

    def filled(text: str) -> str:
        return text.replace("PORT", str(port)).replace("OTHER", str(other)).replace("FOLDER", str(folder))

    server = Authority(folder / "certificates").issue("broker.home")
    shutil.copy(server.certificate, folder / "server.pem")
    shutil.copy(server.key, folder / "server.key")
    (folder / "conf.d").mkdir()
    (folder / "empty").touch()
    for name, text in odd.included.items():
        (folder / "conf.d" / name).write_text(filled(text))
    # Strangers are let in where the profile is not about that. As root it would become another user.
    strangers = "" if "per_listener_settings" in odd.text else "allow_anonymous true\n"
    file = folder / "profile"
    file.write_bytes(f"{strangers}user {getpass.getuser()}\n{filled(odd.text)}".encode())
    return file, filled


def is_answered(address: BrokerAddress) -> bool:
    """Whether a broker takes the connection and a subscription, within the test's patience."""
    probe = Probe(address.port, host=address.host, tls=address.tls)
    report = probe.reports.get(timeout=60)
    probe.connection.close(10)
    return isinstance(report, Connected)


@pytest.mark.source("C9")
@pytest.mark.parametrize("odd", READ, ids=lambda odd: odd.name)
def test_mosquitto_answers_where_the_profile_leads(odd: Odd, tmp_path: Path, supervisor: Supervisor) -> None:
    file, filled = write_profile(odd, tmp_path)
    address = choose(load_profile(file), has_login=odd.has_login)
    assert str(address) == filled(odd.address or "")
    supervisor.start("mosquitto", [find_mosquitto(), "-c", str(file)], ready=lambda: is_answered(address))


@pytest.mark.parametrize("odd", REFUSED, ids=lambda odd: odd.name)
def test_mosquitto_refuses_what_is_refused_here(odd: Odd, tmp_path: Path) -> None:
    file, _ = write_profile(odd, tmp_path)
    ended = subprocess.run(
        [find_mosquitto(), "-c", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert "Error" in ended.stderr


CHECK_EVERY_S = 0.5
LOOK_OFTEN = f"""
from edge.__main__ import program
from parts.discovery import broker
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
    broker: Child

    def rewrite(self, listener: str) -> None:
        """Another listener in the profile, which nobody has told Mosquitto of."""
        lines = self.profile.read_text().splitlines()
        kept = [each for each in lines if not each.startswith(("listener", "certfile", "keyfile"))]
        self.profile.write_text("\n".join([*kept, f"listener {listener}", ""]))

    def move(self, name: str, ready: Callable[[], bool]) -> None:
        """Start a Mosquitto with the profile as it is now, and stop the one before."""
        started = self.supervisor.start(name, [find_mosquitto(), "-c", str(self.profile)], ready=ready)
        self.broker.stop()
        self.broker = started


@pytest.fixture
def movable(
    make_home: MakeHome,
    supervisor: Supervisor,
    mosquitto: Callable[[str], Broker],
    tmp_path: Path,
    cloud: RecordingCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> Movable:
    monkeypatch.setattr(discovered, "CHECK_EVERY_S", CHECK_EVERY_S)  # of the services
    broker = mosquitto("home")
    profile = tmp_path / "home" / "mosquitto.conf"
    # Nobody is at the settings' own port: it has to come from the profile.
    elsewhere = Broker(free_port(), broker.child)
    local = {"profile": str(profile)}
    home = make_home(cloud.port, broker=elsewhere, local=local, program=("-c", LOOK_OFTEN))
    return Movable(home, profile, supervisor, broker.child)


def is_listening_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(path)) == 0


@pytest.mark.source("C9")
def test_a_broker_that_moves_is_found_at_its_new_port_socket_or_certificate(
    movable: Movable, cloud: RecordingCloud, authority: Authority, tmp_path: Path
) -> None:
    home = movable.home
    service = home.transport("health-service", profile=movable.profile)
    service.put(event(0), 60)

    port, before = free_port(), home.logged("local broker connected")
    movable.rewrite(f"{port} 127.0.0.1")
    # The profile leads to nobody yet: the former broker, which still runs, keeps the forwarder.
    wait_for(lambda: home.health() != {} and home.logged("local broker connected") > before)
    assert "Connection refused" in home.log()
    movable.move("at a port", lambda: is_listening(port))
    service.put(event(1), 60)

    path = tmp_path / "mqtt.sock"
    movable.rewrite(f"0 {path}")
    movable.move("at a socket", lambda: is_listening_at(path))
    service.put(event(2), 60)

    port, server = free_port(), authority.issue("broker.home")
    movable.rewrite(f"{port} 127.0.0.1\ncertfile {server.certificate}\nkeyfile {server.key}")
    movable.move("with tls", lambda: is_listening(port))
    service.put(event(3), 60)
    service.close()
    address = f"mqtt://127.0.0.1:{port}"
    with connect(address, "health-service", certificate=str(server.certificate)) as client:
        client.put(event(4), 60)
    stranger = authority.issue("stranger")
    refused = Probe(port, tls=PinnedCertificate(stranger.certificate)).next(Disconnected).reason
    assert "certificate verify failed" in refused

    movable.rewrite("70000")
    # Asking wakes the loop, which looks at the profile then.
    wait_for(lambda: "profile_refused" in home.problems())
    assert f"127.0.0.1:{port} with TLS remains" in home.log()
    wait_for(lambda: cloud.has({f"e{number}" for number in range(5)}))


@pytest.mark.source("C9")
def test_a_client_with_nothing_configured_finds_the_broker_of_its_device(
    movable: Movable, cloud: RecordingCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
