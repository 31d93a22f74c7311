import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.contract_updates import Adopted, active_contract, read_contract
from edge.errors import SettingProblem
from edge.forwarder import Message, Reload, Stop
from edge.housekeeping import Hangup, Housekeeping, Posted, Snapshot, SnapshotWanted, StatusReader
from edge.metrics import render
from edge.systemd import ServiceManager
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
