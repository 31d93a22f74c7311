"""How far a cursor reads ahead of what the uplink sends."""

from __future__ import annotations

from pathlib import Path

from edge.delivery_queues import DeliveryCursor
from edge.spool import READ_CHARACTERS, Spool, StoredEvent

UPLINK = "device.outbox"
NORMAL = 1


def stored(path: Path, count: int, size: int) -> Spool:
    spool = Spool(path / "spool.db", capacity_bytes=64 * 1024**2)
    for first in range(1, count + 1, 10):
        events = [
            StoredEvent(number, NORMAL, "x" * size, {UPLINK: None}, number.to_bytes(16, "big"))
            for number in range(first, first + 10)
        ]
        spool.commit(events, uptime_ms=1)
    return spool


def test_large_events_are_read_ahead_up_to_a_payload_however_often_it_is_asked(tmp_path: Path) -> None:
    size = 90 * 1024
    with stored(tmp_path, 100, size) as spool:
        cursor = DeliveryCursor(spool, UPLINK, NORMAL)
        ahead = [cursor.fill(250) for _ in range(20)]
        assert ahead[-1] * size < 2 * READ_CHARACTERS + size
        assert cursor.more
        # They still come, all of them and in order.
        sent = []
        while cursor.fill(250):
            sent += [each.delivery.sequence for each in cursor.take(1)]
        assert sent == list(range(1, 101))


def test_small_events_are_read_ahead_for_a_whole_batch(tmp_path: Path) -> None:
    with stored(tmp_path, 300, 349) as spool:
        assert DeliveryCursor(spool, UPLINK, NORMAL).fill(250) >= 250
