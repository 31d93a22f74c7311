"""One command in processes of its own: how long it took, and the most memory that they had together."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Final

_EVERY_S: Final = 0.1
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a process tree: `seconds` on the clock, `cpu_s` on all cores, `peak_mib` of resident memory."""

    seconds: float
    cpu_s: float
    peak_mib: float


def measured(command: list[str], environment: dict[str, str]) -> Measured:
    """Run `command`. Raises `subprocess.CalledProcessError`."""
    began = perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    ended, peaks, used = Event(), [0], [0.0]

    def watch() -> None:
        while not ended.wait(_EVERY_S):
            peaks.append(_resident_kib(process.pid))
            used.append(_cpu_s(process.pid))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        status = process.wait()
    finally:
        ended.set()
        watcher.join()
    if status:
        raise subprocess.CalledProcessError(status, command)
    return Measured(perf_counter() - began, max(used), max(peaks) / 1024)


def _cpu_s(pid: int) -> float:
    """The processor seconds of a process and all that it started, those that have ended included."""
    try:
        # Behind the name, which may have spaces: user and system time of itself and of its ended children.
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, times)) / _TICKS_S + sum(_cpu_s(child) for child in children(pid))


def _resident_kib(pid: int) -> int:
    """The resident memory of a process and all that it started, KiB; 0 for what has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
    return own + sum(_resident_kib(child) for child in children(pid))


def children(pid: int) -> list[int]:
    """Return the ids of the running processes that a process started itself."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]
