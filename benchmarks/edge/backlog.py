"""Fills a spool as a long outage does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.edge.events import event
from benchmarks.edge.parts import CAPACITY
from contract.loader import load_contract
from edge.numbering import stamp
from edge.spool import Spool, StoredEvent
from eventplane.contract import Priority
from eventplane.device_reports import key_digest
from eventplane.envelope import Envelope

_COMMIT = 1_000


def fill(path: Path, count: int, size: int, first: int = 0) -> Path:
    """Store `count` events of `size` bytes in `path`, ids from `first` on, pending for the cloud."""
    uplink = load_contract().device.outbox.address
    with Spool(path, capacity_bytes=CAPACITY) as spool:
        for begin in range(first, first + count, _COMMIT):
            arrivals = [
                _arrival(spool, spool.next_sequence + offset, number, size, uplink)
                for offset, number in enumerate(range(begin, min(begin + _COMMIT, first + count)))
            ]
            spool.commit(arrivals, uptime_ms=spool.clock())
    return path


def _arrival(spool: Spool, sequence: int, number: int, size: int, uplink: str) -> StoredEvent:
    text = event(number, size).decode()
    # The envelope is not checked: for a million events that would take longer than everything else.
    stamped = stamp(Envelope({}, text), spool.epoch, sequence)
    key = key_digest(("health-service", "/homes/1/health-service", str(number)))
    return StoredEvent(sequence, Priority.NORMAL.rank, stamped.json, {uplink: None}, key)
