"""Arrivals for tests of the spool."""

from base64 import b85encode
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from random import Random

from edge.spool import BEFORE_EVERYTHING, Delivery, DeviceState, StoredEvent
from edge.spool.store import Spool
from eventplane.downlink.device import StateVersion

CLOUD, HOME = "device.outbox", "call.inbox"


def key(sequence: int) -> bytes:
    return sequence.to_bytes(16, "big")


def arrival(
    sequence: int,
    rank: int = 1,
    to: Iterable[str] | Mapping[str, int | None] = (CLOUD,),
    json: str = "{}",
) -> StoredEvent:
    destinations = to if isinstance(to, Mapping) else dict.fromkeys(to)
    return StoredEvent(sequence, rank, json, destinations, key(sequence))


def device_state(
    key: str,
    version: int = 1,
    json: str = "{}",
    *,
    kind: str = "state",
    deleted: bool = False,
    sequence: int = 0,
    reset: int = 0,
) -> DeviceState:
    held = StateVersion(
        reset=reset,
        version=version,
        is_deleted=deleted,
        order=0,
        sender="app",
        source="/app",
        id=f"v{version}",
    )
    return DeviceState(kind, key, held, 1, sequence, json)


def cloud(sequence: int) -> Delivery:
    return Delivery(CLOUD, 1, sequence)


def fill(spool: Spool, count: int, size: int = 500, a_commit: int = 50) -> None:
    """Store `count` events of `size` bytes for the cloud."""
    for first in range(0, count, a_commit):
        start = spool.next_sequence
        arrivals = [
            arrival(start + n, json=_text(start + n, size)) for n in range(min(a_commit, count - first))
        ]
        spool.commit(arrivals, uptime_ms=spool.clock())


def waiting(spool: Spool, destination: str = CLOUD, rank: int = 1, at_once: int = 1000) -> list[str]:
    """The texts of all that waits, in order, read in pieces."""
    after, found = BEFORE_EVERYTHING, []
    while rows := spool.read(destination, rank, after, at_once):
        assert len(rows) <= at_once
        found += [each.json for each in rows]
        after = rows[-1].delivery.sequence
    return found


def beside(path: Path, suffix: str) -> list[Path]:
    """The files beside a spool whose names go on with `suffix`."""
    return sorted(path.parent.glob(f"{escape(path.name)}{suffix}*"))


def noise(characters: int, seed: int = 0) -> str:
    """Text that compression hardly shortens."""
    return b85encode(Random(seed).randbytes(characters)).decode()[:characters]


def _text(sequence: int, size: int) -> str:
    # In base 85 no character needs an escape in JSON.
    head = f'{{"n":{sequence},"noise":"'
    return f'{head}{noise(max(0, size - len(head) - 2), sequence)}"}}'
