"""`python -m benchmarks.spool`: what the spool writes for what it delivers; writes build/bench/spool.json.

Bytes are what the process gave to the kernel (`wchar` of /proc/self/io), the log and checkpoints included.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.results import Figure, write
from edge.spool import Delivery, Spool, StoredEvent
from eventplane.device_reports import KEY_BYTES

_EVENT_BYTES = 512
_DESTINATION = "device.outbox"
_BACKLOG = 200_000


class Run:
    """Stores events `a_commit` at a time; each is delivered `lag` events later, in the same commits."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / name
        self._text = "x" * _EVENT_BYTES
        self._spool = Spool(self._path, capacity_bytes=1 << 30)

    def online(self, events: int, a_commit: int, lag: int) -> tuple[float, float]:
        """Bytes written for each byte delivered, and CPU microseconds an event."""
        spool, waiting = self._spool, deque[Delivery]()
        before, started = _written(), process_time()
        for _ in range(0, events, a_commit):
            done = [waiting.popleft() for _ in range(a_commit)] if len(waiting) >= lag else []
            waiting.extend(self._store(a_commit, done))
        while waiting:
            spool.commit([], [waiting.popleft() for _ in range(min(a_commit, len(waiting)))], uptime_ms=0)
        cpu_s = process_time() - started
        spool.close()
        return (_written() - before) / (events * _EVENT_BYTES), 1e6 * cpu_s / events

    def opening(self, events: int) -> float:
        """Seconds to open it while `events` wait."""
        for _ in range(0, events, 500):
            self._store(500, [])
        self._spool.close()
        started = perf_counter()
        Spool(self._path).close()
        return perf_counter() - started

    def _store(self, count: int, done: list[Delivery]) -> list[Delivery]:
        first = self._spool.next_sequence
        arrivals = [
            StoredEvent(n, 1, self._text, {_DESTINATION: None}, os.urandom(KEY_BYTES))
            for n in range(first, first + count)
        ]
        self._spool.commit(arrivals, done, uptime_ms=0)
        return [Delivery(_DESTINATION, 1, each.sequence) for each in arrivals]


def main() -> int:
    """Measure in a directory of the working disk."""
    figures = []
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        directory = Path(scratch)
        for name, events, a_commit, lag, aim in (
            ("bulk, 100 a commit", 40_000, 100, 500, 2.0),
            ("bulk, 250 a commit", 40_000, 250, 750, 2.0),
            ("10 a commit", 10_000, 10, 30, None),
            ("1 a commit", 2_000, 1, 5, None),
            ("after a long time offline", 60_000, 100, 60_000, None),
        ):
            amplification, cpu_us = Run(directory, f"{a_commit}-{lag}").online(events, a_commit, lag)
            note = f"{cpu_us:.1f} us of CPU an event"
            figures.append(
                Figure(f"written: {name}", amplification, "B/B", aim, higher_is_better=False, note=note)
            )
        for events in (500, _BACKLOG):
            opening_s = Run(directory, f"opening-{events}").opening(events)
            figures.append(
                Figure(f"opening with {events} waiting", 1000 * opening_s, "ms", higher_is_better=False)
            )
    write("spool", figures, "python -m benchmarks.spool")
    return 0


def _written() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["wchar"])


if __name__ == "__main__":
    sys.exit(main())
