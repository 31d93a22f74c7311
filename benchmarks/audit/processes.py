"""One command in processes of its own: how long it took, and the most memory that they had together."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Final

_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """`seconds` on the clock and the `peak_mib` of resident memory, of a whole process tree."""

    seconds: float
    peak_mib: float


def measured(command: list[str], environment: dict[str, str]) -> Measured:
    """Run `command`. Raises `subprocess.CalledProcessError`."""
    began = perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    ended, peaks = Event(), [0]

    def watch() -> None:
        while not ended.wait(_EVERY_S):
            peaks.append(_resident_kib(process.pid))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        status = process.wait()
    finally:
        ended.set()
        watcher.join()
    if status:
        raise subprocess.CalledProcessError(status, command)
    return Measured(perf_counter() - began, max(peaks) / 1024)


def _resident_kib(pid: int) -> int:
    """The resident memory of a process and all that it started, KiB; 0 for what has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
    return own + sum(_resident_kib(int(child)) for child in children.split())
