"""A disk that is missing, read-only or broken: alarms go on from memory, and everybody is told."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edge.errors import SpoolCorruptError, SpoolError, SpoolUnavailableError
from edge.spool import Spool
from edge.without_disk import FIRST_RETRY_S, MOST_RETRY_S, DiskWatch
from eventplane.attributes import priority_of
from eventplane.device_reports import DISK_FAILED, HEARTBEAT
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.fakes import ALARM, READING, Device, MakeDevice, event

LOCAL, URGENT, CLOUD = LinkName.LOCAL, LinkName.URGENT, LinkName.CLOUD
FULL = "spool_full"
FIRE = event("fire", ALARM)


class Disk:
    """Fails the `methods` of every spool on a disk, and its opening, until it is `mended`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str, opens: bool = False) -> None:
        self.mended = False
        self.openings = 0
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
            if not (self.mended or self._opens):
                raise self.error(spool.path)
            method(spool, undo)

        return call


@pytest.fixture
def disk(device: Device, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of `device`, which fails from now on."""
    return Disk(monkeypatch, "commit")


def test_an_alarm_goes_to_the_call_service_and_the_cloud_and_its_sender_knows_that_nobody_stores_it(
    device: Device, disk: Disk
) -> None:
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]
    assert device.sent_up(ALARM)[0].id == "fire"
    assert device.local.last.acknowledged  # of what will not be stored the broker keeps no copy


def test_the_cloud_is_told_at_once_until_it_acknowledges_that_and_as_often_as_a_heartbeat(
    device: Device, disk: Disk
) -> None:
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


def test_the_disk_is_tried_again_with_growing_intervals_and_the_forwarder_goes_back_to_it(
    device: Device, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = device.spool.epoch
    device.offer(FIRE)
    assert not device.spool.is_on_disk
    tried = []
    for _ in range(1_000):
        before = disk.openings
        device.turn(after=1.0)
        if disk.openings > before:
            tried.append(device.time.seconds)
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2 * FIRST_RETRY_S
    assert gaps[-1] == MOST_RETRY_S
    assert caplog.text.count("disk I/O error") == 1
    disk.mended = True
    device.turn(after=MOST_RETRY_S)
    assert (device.spool.is_on_disk, device.spool.epoch) == (True, epoch)
    assert device.forwarder.disk_failure is None
    assert device.contracts_came == 1  # one that came down is in the spool
    assert device.offer(FIRE) == [None]
    assert "on its disk again" in caplog.text


def test_the_loop_wakes_by_itself_to_try_the_disk(device: Device, disk: Disk) -> None:
    device.offer(FIRE)
    assert 0 < (device.forwarder._timeout_s() or 0) <= FIRST_RETRY_S


def test_an_alarm_that_is_in_memory_when_the_disk_comes_back_is_not_given_up(
    device: Device, disk: Disk
) -> None:
    for number in range(5):  # the service has a window of three
        device.offer(event(f"a{number}", ALARM))
    assert device.ids_at("call") == ["a0", "a1", "a2"]
    disk.mended = True
    device.turn(after=MOST_RETRY_S)
    assert device.spool.is_on_disk
    for _ in range(5):
        device.confirm()
    assert set(device.ids_at("call")) == {f"a{number}" for number in range(5)}


def test_what_was_stored_before_goes_out_when_the_disk_is_back(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_nothing_that_fails_on_the_disk_ends_the_forwarder(
    device: Device, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
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
    watch = DiskWatch(device.settings)
    monkeypatch.setattr(device, "open", lambda: watch.open(device.time.seconds))
    device.start()
    device.connect()
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]
    assert not device.spool.is_on_disk
    assert watch.failure is not None


def test_a_spool_that_stays_damaged_is_done_without(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, "commit", opens=True)
    monkeypatch.setattr(disk, "error", lambda path: SpoolCorruptError(path, "page 3 is torn"))
    assert device.offer(FIRE) == [FULL]
    assert device.ids_at("call") == ["fire"]


def test_another_process_that_has_the_spool_still_ends_it(make: MakeDevice) -> None:
    device = make(connected=False)
    with pytest.raises(SpoolError, match="another forwarder"):
        device.forwarder._disk.open(0.0)
