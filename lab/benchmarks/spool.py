"""`python -m lab.benchmarks.spool`: what the spool writes for what it delivers; build/bench/spool.json.

Bytes are what the process gave to the kernel (`wchar` of /proc/self/io), the log and checkpoints included.
"""

import os
import sys
import tempfile
from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from edge.spool import Delivery, StoredEvent
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.device_reports import KEY_BYTES
from lab.benchmarks.edge.sink import event
from lab.benchmarks.results import Benchmark, Figure

_EVENT_BYTES = 512
_DESTINATION = "device.outbox"

_RUNS = (
    ("bulk, 100 a commit", 40_000, 100, 500, 2.0),
    ("bulk, 250 a commit", 40_000, 250, 750, 2.0),
    ("10 a commit", 10_000, 10, 30, None),
    ("1 a commit", 2_000, 1, 5, None),
    ("after a long time offline", 60_000, 100, 60_000, None),
)
"""Name, events, events a commit, events until one is delivered, and the aim in bytes a byte."""

_BACKLOGS = (500, 200_000)


def written(_: Namespace) -> Iterator[Figure]:
    """Bytes written for each byte delivered, with events stored and delivered in the same commits."""
    for name, events, a_commit, lag, aim in _RUNS:
        # On the working disk: a file system in memory writes nothing.
        with tempfile.TemporaryDirectory(dir=".") as directory:
            spool = Spool(Path(directory) / "spool.db", SYSTEM, capacity_bytes=1 << 30)
            before, started = _written_bytes(), process_time()
            waiting = deque[Delivery]()
            for _each in range(0, events, a_commit):
                done = [waiting.popleft() for _ in range(a_commit)] if len(waiting) >= lag else []
                waiting.extend(_store(spool, a_commit, done))
            while waiting:
                done = [waiting.popleft() for _ in range(min(a_commit, len(waiting)))]
                spool.commit([], done, uptime_ms=0)
            cpu_us = 1e6 * (process_time() - started) / events
            spool.close()
            amplification = (_written_bytes() - before) / (events * _EVENT_BYTES)
        note = f"{cpu_us:.1f} us of CPU an event"
        yield Figure(f"written: {name}", amplification, "B/B", aim, note=note)


def opening(_: Namespace) -> Iterator[Figure]:
    """The time to open a spool in which events are pending."""
    for events in _BACKLOGS:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            path = Path(directory) / "spool.db"
            with Spool(path, SYSTEM, capacity_bytes=1 << 30) as spool:
                for _each in range(0, events, 500):
                    _store(spool, 500, [])
            started = perf_counter()
            Spool(path, SYSTEM).close()
            yield Figure(f"opening with {events} waiting", 1000 * (perf_counter() - started), "ms")


def _store(spool: Spool, count: int, done: list[Delivery]) -> list[Delivery]:
    first = spool.next_sequence
    arrivals = [
        StoredEvent(n, 1, event(n, _EVENT_BYTES).decode(), {_DESTINATION: None}, os.urandom(KEY_BYTES))
        for n in range(first, first + count)
    ]
    spool.commit(arrivals, done, uptime_ms=0)
    return [Delivery(_DESTINATION, 1, each.sequence) for each in arrivals]


def _written_bytes() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["wchar"])


if __name__ == "__main__":
    sys.exit(Benchmark("spool", {"written": written, "opening": opening}).main())
