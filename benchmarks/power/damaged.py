"""A process that recovers a damaged spool: `python -m benchmarks.power.damaged SPOOL`.

It says a line when the damage is done, and another one with what it has recovered.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from edge import durable
from edge.spool import BEFORE_EVERYTHING, Spool, StoredEvent
from edge.spool.database import PAGE_BYTES
from eventplane.device_reports import KEY_BYTES

_COMMITS = 20
_TEXT = "x" * 3 * PAGE_BYTES


def recovered(path: Path) -> list[str]:
    """What waits once the spool at `path` has started: numbers of events."""
    with Spool(path) as spool:
        rows = spool.read("device.outbox", 1, BEFORE_EVERYTHING, 10 * _COMMITS)
        return [each.json.removesuffix(_TEXT) for each in rows]


def main(path: Path) -> None:
    """Fill a spool, damage it in the middle, recover it."""
    with Spool(path) as spool:
        for n in range(1, _COMMITS + 1):
            arrival = StoredEvent(n, 1, f"{n}{_TEXT}", {"device.outbox": None}, bytes(KEY_BYTES))
            spool.commit([arrival], uptime_ms=n)
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, b"\xff" * PAGE_BYTES, path.stat().st_size // 2 // PAGE_BYTES * PAGE_BYTES)
    os.fsync(file)
    os.close(file)
    path.with_name(path.name + ".damaged").touch()
    durable.sync(path.parent)
    _say("damaged")
    _say(recovered(path))


def _say(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
