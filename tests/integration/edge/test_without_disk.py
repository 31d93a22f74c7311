"""A disk that fails under a running forwarder, and comes back."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventplane.device_reports import DISK_FAILED
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.receipts import read_receipts
from eventplane.topics import local_topic, receipt_topic
from tests.integration.edge.conftest import CloudBroker, Home, wait_for
from tests.integration.mqtt import TestClient

ALARM = "org.eventplane.alarm.keyword.v1"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN (fs/ext4/ext4.h): from then on every access to the file system fails with EIO."""
_NO_LOG_FLUSH = 2


@dataclass(frozen=True)
class Disk:
    """An ext4 file system of its own in the file `image`, at `folder`."""

    image: Path
    folder: Path

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.folder)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def shut_down(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of its own for the spool."""
    it = Disk(tmp_path / "image", tmp_path / "state")
    it.folder.mkdir()
    with it.image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    try:
        subprocess.run(["mkfs.ext4", "-q", str(it.image)], check=True)
        it.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield it
    it.unmount()


@pytest.fixture
def home(disk: Disk, home: Home) -> Home:
    return home


def alarm(id: str) -> Envelope:
    event = {"id": id, "source": "/homes/1/voice", "type": ALARM}
    return write_event(event, {"keyword": "help"})


def raise_alarm(home: Home, id: str) -> None:
    """Until the call service was told of it; `refused` says what its sender is told."""
    calls = local_topic("call-service", "inbox")
    answers = receipt_topic("voice-service", "outbox")
    with TestClient("watch", "127.0.0.1", home.broker.port) as client:
        client.subscribe(calls)
        client.subscribe(answers)
        assert client.publish(local_topic("voice-service", "outbox"), alarm(id).json.encode())
        wait_for(lambda: {calls, answers} <= {topic for topic, _ in client.messages})
        (called,) = {parse_event(each).id for topic, each in client.messages if topic == calls}
        assert called == id
        refusals = {
            receipt.refused
            for topic, payload in client.messages
            if topic == answers
            for receipt in read_receipts(payload)
        }
        assert refusals == {"spool_full"}


def reports(cloud: CloudBroker) -> list[Envelope]:
    return [each for each in cloud.events if each.type == DISK_FAILED]


def test_alarms_go_on_when_the_disk_fails_and_events_are_stored_when_it_is_back(
    home: Home, cloud: CloudBroker, disk: Disk
) -> None:
    wait_for(lambda: home.problems() == [])
    disk.shut_down()
    raise_alarm(home, "a1")
    wait_for(lambda: cloud.has({"a1"}) and bool(reports(cloud)))
    assert "no_disk" in home.problems()
    disk.unmount()
    disk.mount()
    wait_for(lambda: home.problems() == [])
    assert home.metric("eventplane_spool_on_disk") == 1.0
    with home.connect("voice-service") as voice:
        voice.put(alarm("a2"), timeout_s=30)
    wait_for(lambda: cloud.has({"a2"}))
