"""What the device says about itself, by the real process: health, metrics, systemd, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.loader import load_contract
from eventplane.envelope import write_event
from eventplane.receipts import Receipt, write_receipts
from eventplane.topics import receipt_topic
from eventplane_client import Client
from eventplane_client.errors import NoRoomError, RefusedError
from tests.integration.edge.conftest import READING, SECONDS, CloudBroker, Home, event, send, wait_for
from tests.integration.mqtt import TestClient

STOP_SECONDS = 15.0
"""What the unit file grants; the forwarder itself takes at most 5 s."""


def put(service: Client, count: int) -> None:
    send(service, 0, count)
    service.flush(SECONDS)


def get(home: Home, path: str) -> tuple[int, str]:
    """Status and body; 0 when nobody listens yet."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", home.health_port), timeout=SECONDS) as line:
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: device\r\n\r\n".encode())
            while more := line.recv(65_536):
                answer += more
    except ConnectionError:
        return 0, ""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def health(home: Home) -> dict[str, Any]:
    """The document of /healthz; empty when nobody listens yet."""
    status, body = get(home, "/healthz")
    document: dict[str, Any] = json.loads(body) if body else {}
    assert (status == 503) == (document.get("status") == "failing")
    return document


def problems(home: Home) -> list[str]:
    return [each["name"] for each in health(home).get("problems", [{"name": "no endpoint yet"}])]


def metric(home: Home, name: str) -> float:
    """The value of a sample by its name and labels; -1 when it is not there."""
    for line in get(home, "/metrics")[1].splitlines():
        if line.startswith(name + " "):
            return float(line.split(" ")[-1])
    return -1.0


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


def test_a_device_that_works_is_well_and_counts(home: Home, cloud: CloudBroker) -> None:
    wait_for(lambda: health(home).get("status") == "ok")
    put(home.connect("health-service"), 5)
    wait_for(home.drained)
    wait_for(lambda: metric(home, "eventplane_acknowledged_total") >= 1)
    assert metric(home, "eventplane_stored_total") >= 5
    assert metric(home, "eventplane_published_events_total") >= 5
    assert metric(home, 'eventplane_pending{destination="device.outbox",priority="normal"}') == 0
    assert metric(home, 'eventplane_link_up{link="cloud"}') == 1
    assert metric(home, 'eventplane_connects_total{link="local"}') == 1
    assert metric(home, "eventplane_spool_used_bytes") > 0
    assert metric(home, "process_resident_memory_bytes") > 5e6


def test_it_is_in_service_before_any_broker_and_says_which_are_missing(
    home: Home, cloud: CloudBroker, manager: Manager
) -> None:
    home.broker.child.kill()
    cloud.stop()
    restart(home, manager)
    assert "local down, urgent down, cloud down" in manager.hear("READY=1")
    assert problems(home) == ["local_broker_down", "cloud_down"]
    home.broker.child.start()
    wait_for(lambda: problems(home) == ["cloud_down"])


@pytest.mark.source("P8")
def test_without_a_disk_it_is_in_service_and_an_alarm_reaches_the_cloud_from_memory(
    home: Home, cloud: CloudBroker, manager: Manager, tmp_path: Path
) -> None:
    place = tmp_path / "blocked"
    place.write_text("a file in the place of the directory")
    restart(home, manager, **{"state/spool.db": "blocked/spool.db"})
    assert "no disk, nothing is stored" in manager.hear("READY=1")
    wait_for(lambda: problems(home) == ["no_disk"])
    assert metric(home, "eventplane_spool_on_disk") == 0
    alarm = write_event(
        {"id": "fire", "source": "/homes/1/voice", "type": "org.eventplane.alarm.keyword.v1"},
        {"keyword": "fire"},
    )
    with pytest.raises(NoRoomError):
        home.connect("voice-service").put(alarm, timeout_s=SECONDS)
    wait_for(lambda: cloud.has({"fire"}))
    place.unlink()
    place.mkdir()
    wait_for(lambda: problems(home) == [])
    assert metric(home, "eventplane_spool_on_disk") == 1
    home.connect("health-service").put(event(1), timeout_s=SECONDS)


@pytest.mark.source("P15")
def test_it_feeds_the_watchdog_while_its_loop_turns_and_only_then(
    home: Home, cloud: CloudBroker, manager: Manager, tmp_path: Path
) -> None:
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
    assert problems(home) == ["loop_stalled"]
    assert get(home, "/metrics")[0] == 503
    assert manager.hears_nothing_of("WATCHDOG=1", within_s=1.0)
    contract.write_bytes(content)
    manager.hear("READY=1")
    manager.hear("WATCHDOG=1")
    wait_for(lambda: health(home).get("status") == "ok")


def test_a_cloud_that_swallows_everything_does_not_starve_the_watchdog(
    home: Home, cloud: CloudBroker, manager: Manager
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        port = f"port = {black_hole.getsockname()[1]}\nrule"
        restart(home, manager, 0.5, **{f"port = {cloud.port}\nrule": port})
        put(home.connect("health-service"), 20)
        for _ in range(5):
            manager.hear("WATCHDOG=1")
        assert problems(home) == ["cloud_down"]


@pytest.mark.source("P-W8")
def test_sighup_takes_a_new_contract_and_refuses_a_broken_one(
    home: Home, cloud: CloudBroker, manager: Manager, tmp_path: Path
) -> None:
    restart(home, manager)
    manager.hear("READY=1")
    old = load_contract().version
    file = tmp_path / "contract.json"
    good = file.read_bytes()

    file.write_bytes(b'{"format": 1, "name": "event-')
    signal_forwarder(home, signal.SIGHUP)
    assert "MONOTONIC_USEC=" in manager.hear("RELOADING=1")
    manager.hear("READY=1")
    wait_for(lambda: problems(home) == ["contract_refused"])
    assert f"contract {old} stays active" in home.log()
    assert metric(home, "eventplane_reloads_refused_total") == 1
    put(home.connect("health-service"), 1)
    wait_for(lambda: cloud.has({"e0"}))

    file.write_bytes(good.replace(b"A door was", b"A window was"))
    assert file.read_bytes() != good
    signal_forwarder(home, signal.SIGHUP)
    manager.hear("RELOADING=1")
    manager.hear("READY=1")
    wait_for(lambda: problems(home) == [])
    assert metric(home, "eventplane_reloads_total") == 1
    info = next(line for line in get(home, "/metrics")[1].splitlines() if line.startswith("eventplane_info"))
    assert f'contract="{old}"' not in info
    put(home.connect("health-service"), 2)
    wait_for(lambda: cloud.has({"e1"}))


def test_receipts_that_a_new_contract_does_not_ask_for_become_no_dead_letters(
    home: Home, tmp_path: Path
) -> None:
    wait_for(lambda: problems(home) == [])
    file = tmp_path / "contract.json"
    before = file.read_bytes()
    file.write_bytes(before.replace(b'"receipts":true', b'"receipts":false'))
    assert file.read_bytes() != before
    signal_forwarder(home, signal.SIGHUP)
    wait_for(lambda: metric(home, 'eventplane_connects_total{link="local"}') == 2)
    # The broker's session remembers what the forwarder subscribed to before.
    with TestClient("call", "127.0.0.1", home.broker.port) as call:
        call.publish(receipt_topic("call-service", "inbox"), write_receipts([Receipt("of some alarm")]))
    wait_for(lambda: "call-service/inbox/receipts ignored" in home.log())
    assert "unknown_channel" not in get(home, "/metrics")[1]


def test_a_start_that_finds_a_broken_contract_goes_by_the_one_before(
    home: Home, cloud: CloudBroker, tmp_path: Path
) -> None:
    wait_for(lambda: problems(home) == [])
    file = tmp_path / "contract.json"
    good, version = file.read_bytes(), load_contract().version
    file.write_bytes(b'{"format": 1, "name": "event-')
    restart(home)
    put(home.connect("health-service"), 1)
    wait_for(lambda: cloud.has({"e0"}))
    wait_for(lambda: problems(home) == ["contract_refused"])
    assert f"the last valid contract, {version}, stays active" in home.log()
    assert metric(home, "eventplane_reloads_refused_total") == 1
    file.write_bytes(good)
    signal_forwarder(home, signal.SIGHUP)
    wait_for(lambda: problems(home) == [])


def test_it_stops_in_good_order_with_a_backlog_and_a_black_hole_for_a_cloud(
    home: Home, cloud: CloudBroker, manager: Manager
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        port = f"port = {black_hole.getsockname()[1]}\nrule"
        restart(home, manager, **{f"port = {cloud.port}\nrule": port})
        put(home.connect("health-service"), 200)
        home.forwarder.terminate()
        manager.hear("STOPPING=1")
        home.forwarder.terminate()  # a second one does no harm
        assert home.forwarder._ended(STOP_SECONDS)
        assert home.forwarder.wait() == 0
    assert "Traceback" not in home.log()


def test_it_stops_in_good_order_while_events_are_under_way(
    home: Home, cloud: CloudBroker, manager: Manager
) -> None:
    restart(home, manager)
    put(home.connect("health-service"), 300)
    home.forwarder.terminate()
    while home.forwarder.running:
        home.forwarder.terminate()
    assert home.forwarder.wait() == 0
    assert "Traceback" not in home.log()


def test_a_taken_port_costs_the_endpoint_and_nothing_else(home: Home, cloud: CloudBroker) -> None:
    home.forwarder.kill()
    with socket.create_server(("127.0.0.1", home.health_port)):
        home.forwarder.start()
        put(home.connect("health-service"), 1)
        wait_for(lambda: cloud.has({"e0"}))
    assert "set health.port to a free port" in home.log()


def test_at_its_most_talkative_it_tells_neither_keys_nor_payloads(
    home: Home, cloud: CloudBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def check(home: Home) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge", "check", "--settings", str(home.settings)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_check_says_all_that_is_wrong_and_touches_no_spool(home: Home, tmp_path: Path) -> None:
    for key in (tmp_path / "certificates").glob("*.key"):
        key.chmod(0o600)
    home.forwarder.kill()
    home.settings.write_text(home.settings.read_text().replace("state/spool.db", "other/spool.db"))
    done = check(home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "contract " in done.stdout
    (tmp_path / "contract.json").write_text("{}")
    (tmp_path / "certificates" / "home-1.key").chmod(0o644)
    done = check(home)
    assert done.returncode == 78
    assert "setting 'contract'" in done.stderr
    assert "chmod 600" in done.stderr
    assert not (tmp_path / "other").exists()
