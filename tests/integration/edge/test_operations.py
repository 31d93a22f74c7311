"""What the device says about itself, by the real process: health, metrics, systemd, and its end."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.loader import load_contract
from eventplane.envelope import write_event
from eventplane_client.errors import NoRoomError, RefusedError
from tests.integration.edge.conftest import READING, SECONDS, Home, RecordingCloud, event, wait_for


class Manager:
    """A service manager: it hears what the forwarder says."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SECONDS)
        self.address = str(directory / "notify")
        self._socket.bind(self.address)

    def hear(self, assignment: str) -> str:
        """Wait for a datagram with `assignment`; the whole of it."""
        while True:
            datagram = self._socket.recv(4096).decode()
            if assignment in datagram.split("\n"):
                return datagram

    def hears_nothing_of(self, assignment: str, within_s: float) -> bool:
        """Whether no such datagram comes for a while."""
        self._socket.settimeout(within_s)
        try:
            self.hear(assignment)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(SECONDS)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    it = Manager(tmp_path)
    yield it
    it.close()


def restart(home: Home, manager: Manager | None = None, watchdog_s: float = 0.0, **changes: str) -> None:
    """Start the forwarder again, under a manager, with texts of its settings replaced."""
    home.forwarder.kill()
    text = home.settings.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    home.settings.write_text(text)
    if manager is not None:
        watchdog = {"WATCHDOG_USEC": str(round(watchdog_s * 1e6))} if watchdog_s else {}
        home.forwarder._env = {**os.environ, "NOTIFY_SOCKET": manager.address, **watchdog}
    home.forwarder.start()


def signal_forwarder(home: Home, number: signal.Signals) -> None:
    assert home.forwarder.pid is not None
    os.kill(home.forwarder.pid, number)


@pytest.mark.source("P8")
def test_no_disk_no_problem(home: Home, cloud: RecordingCloud, manager: Manager, tmp_path: Path) -> None:
    place = tmp_path / "blocked"
    place.write_text("a file in the place of the directory")
    restart(home, manager, **{"state/spool.db": "blocked/spool.db"})
    assert "no disk, nothing is stored" in manager.hear("READY=1")
    wait_for(lambda: home.problems() == ["no_disk"])
    assert home.metric("eventplane_spool_on_disk") == 0
    alarm = write_event(
        {"id": "fire", "source": "/homes/1/voice", "type": "org.eventplane.alarm.keyword.v1"},
        {"keyword": "fire"},
    )
    with pytest.raises(NoRoomError):
        home.connect("voice-service").put(alarm, timeout_s=SECONDS)
    wait_for(lambda: cloud.has({"fire"}))
    place.unlink()
    place.mkdir()
    wait_for(lambda: home.problems() == [])
    assert home.metric("eventplane_spool_on_disk") == 1
    home.connect("health-service").put(event(1), timeout_s=SECONDS)


@pytest.mark.source("P15")
def test_it_feeds_the_watchdog(home: Home, cloud: RecordingCloud, manager: Manager, tmp_path: Path) -> None:
    restart(home, manager, watchdog_s=0.5)
    manager.hear("READY=1")
    for _ in range(3):
        manager.hear("WATCHDOG=1")
    # A contract that nobody writes holds up the loop, as a disk that hangs would.
    contract = tmp_path / "contract.json"
    content = contract.read_bytes()
    contract.unlink()
    os.mkfifo(contract)
    signal_forwarder(home, signal.SIGHUP)
    manager.hear("RELOADING=1")
    assert manager.hears_nothing_of("WATCHDOG=1", within_s=1.0)
    contract.write_bytes(content)
    manager.hear("READY=1")
    manager.hear("WATCHDOG=1")
    wait_for(lambda: home.health().get("status") == "ok")
    home.forwarder.terminate()
    manager.hear("STOPPING=1")
    for _ in range(3):  # more of them do no harm
        home.forwarder.terminate()
    assert home.forwarder.wait() == 0
    assert "Traceback" not in home.log()


@pytest.mark.source("P-W8")
def test_sighup_loads_a_contract(home: Home, cloud: RecordingCloud, manager: Manager, tmp_path: Path) -> None:
    restart(home, manager)
    manager.hear("READY=1")
    old = load_contract().version
    file = tmp_path / "contract.json"
    good = file.read_bytes()

    file.write_bytes(b'{"format": 1, "name": "event-')
    signal_forwarder(home, signal.SIGHUP)
    assert "MONOTONIC_USEC=" in manager.hear("RELOADING=1")
    manager.hear("READY=1")
    wait_for(lambda: home.problems() == ["contract_refused"])
    assert f"contract {old} stays active" in home.log()

    file.write_bytes(good.replace(b"A door was", b"A window was"))
    assert file.read_bytes() != good
    signal_forwarder(home, signal.SIGHUP)
    manager.hear("RELOADING=1")
    manager.hear("READY=1")
    wait_for(lambda: home.problems() == [])

    # A start that finds a broken one goes by the last valid one.
    file.write_bytes(b'{"format": 1, "name": "event-')
    restart(home)
    home.connect("health-service").put(event(0), timeout_s=SECONDS)
    wait_for(lambda: cloud.has({"e0"}))
    wait_for(lambda: home.problems() == ["contract_refused"])
    assert "the last valid contract, " in home.log()


def test_the_debug_log_has_neither_keys_nor_payloads(
    home: Home, cloud: RecordingCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTPLANE_LOG_LEVEL", "debug")
    restart(home)
    service = home.transport("health-service")
    with pytest.raises(RefusedError):
        service.put(b"hush, no event", SECONDS)
    attributes = {"id": "e0", "source": "/homes/1/health", "type": READING, "subject": "hush"}
    service.put(write_event(attributes, {"value": "hush"}), SECONDS)
    wait_for(lambda: cloud.has({"e0"}))
    # A broken key is complained about without being quoted.
    key = tmp_path / "certificates" / "home-1.key"
    secrets = key.read_text().splitlines()[1:-1]
    key.write_text(key.read_text().replace(secrets[0], secrets[0][::-1]))
    cloud.stop()
    cloud.start()
    wait_for(lambda: f"{key} cannot be used" in home.log())
    assert "became dead letters: not_json" in home.log()
    assert not [each for each in ("hush", *secrets) if each in home.log()]
