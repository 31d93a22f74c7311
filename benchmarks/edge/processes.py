"""Reads what a process has used, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the user and system time of a process, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process, MiB."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Rss:") / 1024


def peak_rss_mib(pid: int) -> float:
    """Return the peak of resident memory of a process, MiB."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") / 1024


def written_bytes(pid: int) -> int:
    """Return the bytes that a process wrote to storage; 0 on a file system in memory."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["write_bytes"])


def _kilobytes(file: Path, name: str) -> int:
    line = next(each for each in file.read_text().splitlines() if each.startswith(name))
    return int(line.split()[1])
