"""What a process has used so far, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Resident memory, MiB."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Rss:") / 1024


def peak_rss_mib(pid: int) -> float:
    """The most resident memory there ever was, MiB."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") / 1024


def written_bytes(pid: int) -> int:
    """Bytes that the process caused to be sent to storage. 0 on a file system in memory."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["write_bytes"])


def _kilobytes(file: Path, name: str) -> int:
    line = next(each for each in file.read_text().splitlines() if each.startswith(name))
    return int(line.split()[1])
