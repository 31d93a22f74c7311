"""Housekeeping, and what systemd is told."""

import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.contract_updates import Adopted, active_contract, read_contract
from edge.errors import SettingProblem
from edge.forwarder import Message, Reload, Stop
from edge.housekeeping import Hangup, Housekeeping, Posted, Snapshot, SnapshotWanted, StatusReader
from edge.metrics import render
from edge.systemd import (
    REPEAT_S,
    REPEATS_PASSED,
    JournalFormatter,
    RepeatFilter,
    ServiceManager,
    logs_to_journal,
)
from eventplane_mqtt.mailbox import Connected, LinkName, Mailbox
from tests.unit.edge.fakes import Device, contract, damage, event
from tests.unit.edge.test_unstored import Disk

WATCHDOG_S = 20.0
STUCK_S = 3 * 30.0 + 0.25


class Service:
    """A monitored device: its mailbox, its clock, and what its manager heard."""

    def __init__(self, directory: Path, device: Device, watchdog_s: float | None) -> None:
        self.device = device
        self.contract_file = directory / "contract.json"
        self.mailbox: Mailbox[Posted] = Mailbox()
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.bind(str(directory / "notify"))
        self._heard.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(directory / "notify")}
        if watchdog_s:
            environment["WATCHDOG_USEC"] = str(round(watchdog_s * 1e6))
        self.housekeeping = Housekeeping(
            self.mailbox,
            StatusReader(device.forwarder, device.time.system()),
            ServiceManager(environment, 1),
            self._read,
            lambda: device.time.seconds,
        )

    def _read(self) -> Adopted | SettingProblem:
        return active_contract(read_contract(self.contract_file), self.device.spool, self.device.contract)

    def wait(self, *posted: Posted, after: float = 0.0) -> list[Message]:
        """One look into the mailbox, `after` seconds."""
        for each in posted:
            self.mailbox.put(each)
        self.device.time.seconds += after
        return list(self.housekeeping.wait(0))

    def heard(self) -> list[str]:
        """The first line of each datagram since the last call."""
        lines = []
        while True:
            try:
                lines.append(self._heard.recv(4096).decode().split("\n")[0])
            except BlockingIOError:
                return lines

    def settle(self) -> list[str]:
        """Look twice, as after a start, and return what was heard."""
        self.wait()
        self.wait()
        return self.heard()

    def snapshot(self) -> Snapshot:
        """What another thread gets that asks while the loop turns."""
        got: list[Snapshot | None] = []
        thread = threading.Thread(target=lambda: got.append(self.housekeeping.snapshots.ask(30)))
        thread.start()
        while not got:
            self.wait()
        thread.join()
        assert got[0] is not None
        return got[0]

    def close(self) -> None:
        self._heard.close()


@pytest.fixture
def service(tmp_path: Path, device: Device) -> Iterator[Service]:
    it = Service(tmp_path, device, WATCHDOG_S)
    yield it
    it.close()


@pytest.fixture
def unwatched(tmp_path: Path, device: Device) -> Iterator[Service]:
    """Under a manager without a watchdog."""
    (tmp_path / "unwatched").mkdir()
    it = Service(tmp_path / "unwatched", device, None)
    yield it
    it.close()


def test_messages_pass_in_order_and_its_own_do_not(service: Service) -> None:
    stop, connected = Stop(), Connected(LinkName.LOCAL, 1)
    assert service.wait(SnapshotWanted(), connected, SnapshotWanted(), stop) == [connected, stop]
    assert service.heard() == ["READY=1", "STOPPING=1"]


def test_after_the_stop_the_manager_hears_nothing_else(service: Service) -> None:
    service.contract_file.write_bytes(contract().canonical)
    service.wait(Hangup(), Stop())
    service.device.disconnect(LinkName.CLOUD)
    service.wait(after=WATCHDOG_S)
    assert service.heard()[-1] == "STOPPING=1"


def test_it_is_ready_once_the_loop_turns_and_feeds_the_watchdog_twice_an_interval(service: Service) -> None:
    for each in (LinkName.LOCAL, LinkName.CLOUD):  # also without any broker
        service.device.disconnect(each)
    assert service.heard() == []
    assert service.settle() == ["READY=1", "WATCHDOG=1"]
    for _ in range(9):
        service.wait(after=1.0)
    assert service.heard() == []
    service.wait(after=1.0)
    assert service.heard() == ["WATCHDOG=1"]


def test_the_watchdog_wakes_an_idle_loop(service: Service, unwatched: Service) -> None:
    service.settle()
    assert service.housekeeping._timeout_s(None) == WATCHDOG_S / 2
    assert service.housekeeping._timeout_s(3.0) == 3.0
    assert unwatched.housekeeping._timeout_s(None) is None


def test_a_connection_that_comes_or_goes_is_reported_at_once(unwatched: Service) -> None:
    assert unwatched.settle() == ["READY=1"]
    unwatched.device.disconnect(LinkName.CLOUD)
    unwatched.wait()
    (status,) = unwatched.heard()
    assert status.startswith("STATUS=degraded: local up, urgent up, cloud down; 0 deliveries pending")
    unwatched.wait()
    assert unwatched.heard() == []


def test_a_disks_return_is_reported(unwatched: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    unwatched.settle()
    disk = Disk(monkeypatch, "commit")
    unwatched.device.send(event("e"))
    unwatched.wait()
    (line,) = unwatched.heard()
    assert line.startswith("STATUS=failing: ")
    assert "no disk, nothing is stored: cannot commit: disk I/O error" in line
    status, findings, families = unwatched.snapshot()
    assert (status.disk_failure, findings[0].name) == ("cannot commit: disk I/O error", "no_disk")
    assert "eventplane_spool_on_disk 0" in render(families)
    disk.mended = True
    unwatched.device.turn(after=61.0)
    unwatched.wait()
    (line,) = unwatched.heard()
    assert "disk" not in line
    assert "eventplane_spool_on_disk 1" in render(unwatched.snapshot().families)


def test_a_stuck_uplink_stops_the_keepalives_until_it_moves(service: Service) -> None:
    service.device.send(event("e"))
    service.settle()
    service.wait(after=STUCK_S)
    assert [line[:7] for line in service.heard()] == ["STATUS="]
    assert service.snapshot().findings[0].name == "stuck"
    service.device.disconnect(LinkName.CLOUD)
    service.wait(after=WATCHDOG_S)
    assert service.heard() == ["WATCHDOG=1"]


def test_a_new_contract_is_handed_on_and_ready_follows_the_turn_that_takes_it(service: Service) -> None:
    service.wait()
    service.contract_file.write_bytes(contract("org.other.").canonical)
    (message,) = service.wait(Hangup())
    assert isinstance(message, Reload)
    assert message.contract.version == contract("org.other.").version
    assert service.heard()[-1] == "RELOADING=1"
    service.device.turn(message)
    service.wait()
    assert service.heard()[0] == "READY=1"
    status, _, families = service.snapshot()
    assert status.contract_version == message.contract.version
    assert "eventplane_reloads_total 1" in render(families)


def test_a_broken_contract_is_refused(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.wait()
    service.contract_file.write_text("{")
    assert service.wait(Hangup()) == []
    service.wait()
    assert "READY=1" in service.heard()
    status, findings, families = service.snapshot()
    assert status.contract_version == service.device.contract.version
    assert "eventplane_reloads_refused_total 1" in render(families)
    assert [each.name for each in findings] == ["contract_refused"]
    assert "contract.json" in caplog.text
    service.contract_file.write_bytes(contract().canonical)
    service.wait(Hangup())
    assert service.snapshot().findings == ()


def test_damage_does_not_end_the_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(service.device, monkeypatch, "oldest_stored_ms")
    assert service.snapshot().status.pending == 0


@pytest.fixture(params=["path", "abstract"])
def manager_socket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and its address as the environment has it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@eventplane-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.bind("\0" + name[1:] if name.startswith("@") else name)
        it.settimeout(10)
        yield it, name


def test_the_manager_receives_each_notification(manager_socket: tuple[socket.socket, str]) -> None:
    heard, address = manager_socket
    manager = ServiceManager({"NOTIFY_SOCKET": address}, os.getpid())
    manager.ready("all is\nwell")
    assert heard.recv(999) == b"READY=1\nSTATUS=all is well"
    manager.status("s")
    assert heard.recv(999) == b"STATUS=s"
    manager.alive("s")
    assert heard.recv(999) == b"WATCHDOG=1\nSTATUS=s"
    manager.stopping()
    assert heard.recv(999) == b"STOPPING=1\nSTATUS=stopping"


def test_a_reload_carries_the_time_of_the_monotonic_clock(manager_socket: tuple[socket.socket, str]) -> None:
    heard, address = manager_socket
    before = time.monotonic_ns() // 1000
    ServiceManager({"NOTIFY_SOCKET": address}, 1).reloading()
    first, second = heard.recv(999).decode().split("\n")
    assert first == "RELOADING=1"
    name, _, value = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000


def test_a_manager_that_does_not_listen_delays_nothing(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, 1).ready("s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "deaf")}, 1)
        for _ in range(1_000):  # more than its queue holds
            manager.status("x" * 1_000)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "30000000", "NOTIFY_SOCKET": ""}, None),
    ],
)
def test_only_a_named_watchdog_is_ours(environment: dict[str, str], expected: float | None) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/x", **environment}, 7).watchdog_s == expected


def test_the_journal_is_known_by_the_stream_it_names() -> None:
    with Path(os.devnull).open("wb") as stream:
        opened = os.fstat(stream.fileno())
        named = {"JOURNAL_STREAM": f"{opened.st_dev}:{opened.st_ino}"}
        assert logs_to_journal(named, stream.fileno())
        assert not logs_to_journal({}, stream.fileno())
        assert not logs_to_journal({"JOURNAL_STREAM": "1:2"}, stream.fileno())
        closed = stream.fileno()
    assert not logs_to_journal(named, closed if closed != sys.stderr.fileno() else -1)


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("eventplane_mqtt.reconnection", level, "f", 1, message, arguments, None)


def test_every_line_of_a_record_has_its_priority() -> None:
    formatter = JournalFormatter("%(name)s: %(message)s")
    assert (
        formatter.format(record("one\ntwo", level=logging.ERROR))
        == "<3>eventplane_mqtt.reconnection: one\n<3>two"
    )
    assert formatter.format(record("x", level=logging.CRITICAL)).startswith("<2>")
    assert formatter.format(record("x", level=logging.INFO)).startswith("<6>")
    assert formatter.format(record("x", level=logging.DEBUG)).startswith("<7>")


def test_repeated_complaints_are_left_out_and_counted() -> None:
    now = [0.0]
    repeats = RepeatFilter(lambda: now[0])
    passed = [repeats.filter(record("cloud: %s", number)) for number in range(REPEATS_PASSED + 7)]
    assert passed == [True] * REPEATS_PASSED + [False] * 7
    assert repeats.filter(record("another one"))
    now[0] = REPEAT_S
    late = record("cloud: %s", "again")
    assert repeats.filter(late)
    assert late.getMessage() == "cloud: again (7 more like it were left out)"
    following = record("cloud: %s", "again")
    assert repeats.filter(following)
    assert following.getMessage() == "cloud: again"


def test_a_rare_complaint_is_never_left_out() -> None:
    now = [0.0]
    repeats = RepeatFilter(lambda: now[0])
    for _ in range(5 * REPEATS_PASSED):
        assert repeats.filter(record("rare"))
        now[0] += REPEAT_S / REPEATS_PASSED
