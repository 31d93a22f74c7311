"""An urgent event that cannot be stored, for want of room or of a disk: it is delivered from memory."""

import contextlib
import errno
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge.delivery_queues import SENT_UNSTORED, UNCONFIRMED
from edge.errors import SpoolCorruptError, SpoolError, SpoolUnavailableError
from edge.forwarder import Reload
from edge.housekeeping import StatusReader
from edge.spool.files import log_of, marker_of
from edge.spool.store import Spool
from edge.system import SYSTEM
from edge.without_disk import FIRST_RETRY_S, MOST_RETRY_S, DiskWatch
from eventplane.attributes import priority_of
from eventplane.device_reports import DISK_FAILED, HEARTBEAT
from eventplane.envelope import parse_event
from eventplane.guarantee import lifetime_ms
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.values import timestamp
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.builders import noise, state
from tests.unit.edge.disks import SmallDisk, fill_the_rest
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, MakeDevice, contract, damage, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
FULL = "spool_full"
FIRE = event("fire", ALARM)
DELIVERED = FIRE.stamped(senderservice="sensor")


@pytest.fixture
def full(make: MakeDevice) -> Device:
    """Both brokers are there, and no byte of room is left."""
    device = make()
    device.resize(device.spool.space.used_bytes)
    return device


def make_room(device: Device) -> None:
    device.resize(64 * 1024 * 1024)


def test_only_urgent_events_go_from_memory(full: Device) -> None:
    assert full.offer(FIRE, event("r", subject="show"), event("c", CHORE)) == [FULL] * 3
    full.turn(after=1.0)
    assert full.delivered("call") == [DELIVERED.json.encode()]
    assert full.uplinked() == [["fire"]]
    assert full.delivered("display") == []
    assert not full.spool.pending("call.inbox", 0)


def test_a_duplicate_calls_the_service_no_second_time(full: Device) -> None:
    for _ in range(3):
        assert full.offer(FIRE, FIRE) == [FULL, FULL]
    full.confirm()
    full.turn(full.puback(1))
    for _ in range(3):
        assert full.offer(FIRE) == [FULL]
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])


def test_it_goes_before_all_that_is_stored(make: MakeDevice) -> None:
    device = make(connected=False)
    device.connect(CLOUD)
    for n in range(5):
        device.send(event(f"a{n}", ALARM))
    device.resize(device.spool.space.used_bytes)
    device.connect(LOCAL)
    assert device.ids_at("call") == ["a0", "a1", "a2"]
    device.offer(FIRE)
    device.confirm()
    assert device.ids_at("call")[3:] == ["fire", "a3", "a4"]


def test_what_was_in_flight_when_a_connection_ended_goes_over_the_next(full: Device) -> None:
    full.offer(FIRE)
    full.reconnect(LOCAL)
    assert full.ids_at("call") == ["fire"]
    full.confirm()
    full.reconnect(CLOUD)
    assert full.uplinked() == [["fire"]]
    full.turn(full.puback(1))
    assert full.forwarder.counts.sent_unstored == 2
    assert full.offer(FIRE) == [FULL]
    assert (full.ids_at("call"), full.uplinked()) == (["fire"], [["fire"]])


def test_one_that_the_cloud_does_not_answer_is_sent_again(full: Device) -> None:
    full.offer(FIRE)
    full.turn(after=full.settings.cloud.puback_timeout_s)
    full.redial(CLOUD)
    assert full.uplinked() == [["fire"]]


def test_one_at_which_the_cloud_ends_each_connection_is_given_up(full: Device) -> None:
    full.offer(FIRE)
    for _ in range(20):
        full.reconnect(CLOUD)
        if [] in full.uplinked():
            full.turn(full.puback(1))
    assert ["fire"] not in full.uplinked()


def test_a_service_that_does_not_confirm_is_called_again_but_seldom(full: Device) -> None:
    for _ in range(100):
        full.offer(FIRE)
        full.turn(after=1.0)
    assert full.ids_at("call") == ["fire"] * 5  # after 10 and 20 s more, then each 30 s


def test_when_it_is_stored_later_it_comes_once_more(full: Device) -> None:
    assert full.offer(FIRE) == [FULL]
    full.confirm()
    make_room(full)
    assert full.offer(FIRE) == [None]
    assert full.offer(FIRE) == [None]
    first, second = (parse_event(each) for each in full.delivered("call"))
    assert first.key == second.key
    assert "devicesequence" in second.attributes
    assert "devicesequence" not in first.attributes


def test_it_is_counted_as_refused_each_time_and_as_sent_when_it_was(full: Device) -> None:
    full.offer(FIRE)
    assert full.forwarder.counts.sent_unstored == 0
    full.confirm()
    full.offer(FIRE)
    assert (full.forwarder.counts.refused, full.forwarder.counts.sent_unstored) == (2, 1)
    full.disconnect(CLOUD)
    make_room(full)
    full.turn(after=61.0)
    assert full.not_stored() == {("sensor.outbox", FULL): 2, ("call.inbox", SENT_UNSTORED): 1}
    assert UNCONFIRMED not in {reason for _, reason in full.not_stored()}


def test_the_refusal_of_an_unstored_event_becomes_a_dead_letter(full: Device) -> None:
    full.offer(FIRE)
    make_room(full)
    refusal = Receipt(digest(DELIVERED.json.encode()), "no_line")
    full.turn(full.receipt_of("call", write_receipts([refusal])))
    assert full.forwarder.counts.sent_unstored == 1
    assert full.ids_at("call") == ["fire"]
    assert full.spool.pending("device.outbox", 1) >= 1


def test_a_best_effort_inbox_gets_it_too(make: MakeDevice) -> None:
    plane = contract(display={"inbox": {"delivery_guarantee": "best_effort"}})
    device = make(plane=plane)
    device.resize(device.spool.space.used_bytes)
    assert device.offer(event("fire", ALARM, subject="show")) == [FULL]
    assert len(device.delivered("display")) == len(device.delivered("call")) == 1


def test_it_works_on_a_disk_that_is_really_full(small_disk: SmallDisk) -> None:
    device = Device(small_disk.path)
    device.connect(LOCAL)
    fill_the_rest(small_disk.path.with_name("other"))
    stored = 0
    while device.offer(event(f"a{stored}", ALARM, pad=noise(50_000, stored))) == [None]:
        stored += 1
    for _ in range(stored):  # the service has a window of three
        device.confirm()
    assert sorted(device.ids_at("call")) == sorted(f"a{n}" for n in range(stored + 1))
    assert device.offer(event("reading"), event("fire", ALARM, pad=noise(50_000))) == [FULL, FULL]
    assert device.ids_at("call")[-1] == "fire"
    assert "devicesequence" not in parse_event(device.delivered("call")[-1]).attributes
    device.crash()


class Disk:
    """Fails the `methods` of every spool on a disk, and its opening, until it is `mended`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str, opens: bool = False) -> None:
        self.mended = False
        self.openings = 0
        self.opening: Callable[[], object] = int
        self._opens = opens
        for each in methods:
            monkeypatch.setattr(Spool, each, self._failing(getattr(Spool, each)))
        monkeypatch.setattr(Spool, "_open_on_disk", self._opening(Spool._open_on_disk))

    def error(self, path: Path) -> SpoolError:
        return SpoolUnavailableError(path, "cannot commit: disk I/O error", "replace the disk")

    def _failing(self, method: Any) -> Any:
        def call(spool: Spool, *arguments: Any, **more: Any) -> Any:
            if spool.is_on_disk and not self.mended:
                raise self.error(spool.path)
            return method(spool, *arguments, **more)

        return call

    def _opening(self, method: Any) -> Any:
        def call(spool: Spool, undo: contextlib.ExitStack) -> None:
            self.openings += 1
            self.opening()
            if not (self.mended or self._opens):
                raise self.error(spool.path)
            method(spool, undo)

        return call


@pytest.fixture
def disk(device: Device, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of `device`, which fails from now on."""
    return Disk(monkeypatch, "commit")


def test_without_a_disk_an_alarm_arrives(device: Device, disk: Disk) -> None:
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]
    assert device.sent_up(ALARM)[0].id == "fire"
    assert device.local.last.acknowledged  # of what will not be stored the broker keeps no copy


def test_a_failed_disk_is_reported(device: Device, disk: Disk) -> None:
    device.offer(FIRE)
    (report,) = device.sent_up(DISK_FAILED)
    assert report.data() == {
        "problem": "cannot commit: disk I/O error",
        "remedy": "replace the disk",
        "for_s": 0,
    }
    assert priority_of(int(report.attributes["severitynumber"])) == "urgent"
    assert report.attributes["time"] == "2024-05-01T12:16:40.000Z"
    assert device.cloud.last.published[0][1].startswith("$aws/rules/rule_urgent/")
    assert len(device.sent_up(HEARTBEAT)) <= 1
    device.turn(after=5.0)
    assert len(device.sent_up(DISK_FAILED)) == 1
    device.reconnect(CLOUD)
    assert [each.id for each in device.sent_up(DISK_FAILED)] == [report.id]
    device.acknowledge_all()
    device.turn(after=device.settings.heartbeat_s)
    again = device.sent_up(DISK_FAILED)[-1]
    assert again.data()["for_s"] > 60
    assert again.id != report.id


@pytest.mark.parametrize("takes_s", [0.0, 4 * MOST_RETRY_S])
def test_retries_grow(device: Device, disk: Disk, takes_s: float, caplog: pytest.LogCaptureFixture) -> None:
    disk.opening = lambda: setattr(device.time, "seconds", device.time.seconds + takes_s)
    epoch = device.spool.epoch
    device.offer(FIRE)
    assert not device.spool.is_on_disk
    assert 0 < (device.forwarder._timeout_s() or 0) <= FIRST_RETRY_S  # the loop wakes by itself
    tried = []
    for _ in range(1_000):
        before = disk.openings
        device.turn(after=1.0)
        if disk.openings > before:
            tried.append(device.time.seconds)
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2 * (FIRST_RETRY_S + takes_s)
    assert gaps[-1] == takes_s + max(MOST_RETRY_S, takes_s)
    assert caplog.text.count("disk I/O error") == 1
    disk.mended = True
    device.turn(after=MOST_RETRY_S + takes_s)
    assert (device.spool.is_on_disk, device.spool.epoch) == (True, epoch)
    assert device.forwarder.disk.failure is None
    assert device.contracts_came == 1  # one that came down is in the spool
    assert device.offer(FIRE) == [None]
    assert "on its disk again" in caplog.text


def test_an_alarm_in_memory_is_kept(device: Device, disk: Disk) -> None:
    for number in range(5):  # the service has a window of three
        device.offer(event(f"a{number}", ALARM))
    assert device.ids_at("call") == ["a0", "a1", "a2"]
    disk.mended = True
    device.turn(after=MOST_RETRY_S)
    assert device.spool.is_on_disk
    for _ in range(5):
        device.confirm()
    assert set(device.ids_at("call")) == {f"a{number}" for number in range(5)}


def disk_fails_and_comes_back(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, "commit")
    device.send(event("a"))
    assert not device.spool.is_on_disk
    disk.mended = True
    device.turn(after=MOST_RETRY_S)
    assert device.spool.is_on_disk


def spool_is_damaged(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        damage(device, failing, "commit")
        device.send(event("a"))
    device.turn(after=MOST_RETRY_S)


def uplink_and_inbox_change(device: Device, _: pytest.MonkeyPatch) -> None:
    changed = contract(batching_delay_ms=100)
    device.turn(Reload(changed), after=MOST_RETRY_S)


@pytest.mark.parametrize("change", [disk_fails_and_comes_back, spool_is_damaged, uplink_and_inbox_change])
def test_the_lifetime_of_what_only_memory_has_goes_on_in_another_spool_or_queue(
    full: Device, monkeypatch: pytest.MonkeyPatch, change: Callable[[Device, pytest.MonkeyPatch], None]
) -> None:
    full.disconnect(CLOUD)
    now = full.time.now()
    mortal = {"time": timestamp(now), "expirytime": timestamp(now + timedelta(seconds=600))}
    full.offer(event("fire", ALARM, **mortal))
    accepted_ms = full.time.uptime().ms
    (before,) = full.delivered("call")
    full.turn(after=100.0)
    make_room(full)
    change(full, monkeypatch)
    full.reconnect(CLOUD)
    (sent,) = full.sent_up(ALARM)
    assert lifetime_ms(sent) == accepted_ms + 600_000 - full.time.uptime().ms
    full.reconnect(LOCAL)
    assert full.delivered("call") == [before]


def test_the_disks_return_sends_the_stored(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.disconnect(CLOUD)
    assert device.offer(event("r1"), event("r2")) == [None, None]
    disk = Disk(monkeypatch, "commit")
    assert device.offer(event("r3")) == [FULL]
    assert device.offer(event("r1")) == [None]  # it is known, though its disk cannot be read
    disk.mended = True
    device.turn(after=MOST_RETRY_S)
    device.redial(CLOUD)
    device.turn(after=1.0)
    assert [each.id for each in device.sent_up(READING)] == ["r1", "r2"]


@pytest.mark.parametrize("method", ["read", "tidy", "commit"])
def test_no_disk_failure_is_fatal(device: Device, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    device.disconnect(CLOUD)
    device.offer(event("r1"), event("r2"))
    Disk(monkeypatch, method, opens=True)  # opening works, and it fails again
    device.connect(CLOUD)
    for number in range(50):
        device.send(event(f"a{number}", ALARM), after=7.0)
    device.confirm()
    assert device.ids_at("call")


def test_a_start_without_the_disk_forwards_alarms(make: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make(connected=False)
    device.crash()
    Disk(monkeypatch)
    watch = DiskWatch(device.settings, SYSTEM)
    monkeypatch.setattr(device, "open", lambda: watch.open(device.time.seconds))
    device.start()
    device.connect()
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]
    assert not device.spool.is_on_disk
    assert watch.failure is not None


@pytest.mark.parametrize("spool", ["file/spool.db", "folder", "/proc/spool/spool.db"])
def test_a_path_that_cannot_be_used_is_done_without(device: Device, tmp_path: Path, spool: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    watch = DiskWatch(replace(device.settings, spool=tmp_path / spool), SYSTEM)
    with watch.open(0.0) as opened:
        assert not opened.is_on_disk
    assert isinstance(watch.failure, SpoolUnavailableError)


def test_a_spool_that_stays_damaged_is_done_without(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, "commit", opens=True)
    monkeypatch.setattr(disk, "error", lambda path: SpoolCorruptError(path, "page 3 is torn"))
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]
    for _ in range(1_000):
        device.turn(after=1.0)
    assert disk.openings < 25  # each writes all that can be read of it


def test_another_process_that_has_the_spool_still_ends_it(make: MakeDevice) -> None:
    device = make(connected=False)
    with pytest.raises(SpoolError, match="another forwarder"):
        device.forwarder.disk.open(0.0)


LATE = (
    *(f"edge.{each}" for each in ("downlink", "questions", "metrics")),
    *(f"edge.spool.{each}" for each in ("recovery", "log", "states")),
    *(f"eventplane.{each}" for each in ("conversation", "downlink", "interest.announcement")),
)
"""What only an event, a question or damage brings into memory."""


@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), ImportError("bad local file header")])
def test_it_runs_from_memory(device: Device, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def find_spec(name: str, *_: object) -> None:
        if name.startswith(LATE):
            raise error

    with monkeypatch.context() as unreadable:
        for each in [each for each in sys.modules if each.startswith(LATE)]:
            unreadable.delitem(sys.modules, each)
        unreadable.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])
        device.turn(device.question_of("call", "1", "k"), device.announcement_of("call"))
        device.turn(device.from_cloud(state(1)))
        assert StatusReader(device.forwarder, device.time.system()).heartbeat(0.0) == {}
        assert device.offer(FIRE) == [None]
        marker_of(device.path).touch()
        damage(device, unreadable, "commit")
        assert device.offer(event("a1", ALARM)) == [FULL]
        marker_of(device.path).unlink()
        log_of(device.path).write_bytes(bytes(100))
        device.turn(after=MOST_RETRY_S)
        assert device.offer(event("a2", ALARM)) == [FULL]
        assert set(device.ids_at("call")) == {"fire", "a1", "a2"}
    device.turn(after=MOST_RETRY_S)
    assert device.spool.origin.kind == "recovered"
    device.turn(device.from_cloud(state(1)), device.question_of("call", "1", "k"))
    assert len(device.acknowledgements()) == len(device.answers("call")) == 1
