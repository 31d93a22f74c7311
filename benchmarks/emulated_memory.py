"""How much memory a program takes under qemu's user mode: with the emulator, and of its own alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)")
_KIB = 1024


def total_rss_mib(pid: int) -> float:
    """Resident memory of process `pid`, the emulator's own included, MiB."""
    return sum(kib for _, _, _, kib in _mappings(pid)) / _KIB


def guest_rss_mib(pid: int, program: str) -> float:
    """Resident memory of the emulated program alone, MiB: what a device would show, libraries included.

    A 32-bit program lives in one range of 4 GiB that qemu reserves for it, so everything between the gaps
    around the file `program` (a part of its path) is its own; the emulator and its translations are outside.
    """
    spans: list[tuple[bool, float]] = []
    end_before = None
    for start, end, name, kib in _mappings(pid):
        is_program, used = spans.pop() if spans and start == end_before else (False, 0.0)
        spans.append((is_program or program in name, used + kib))
        end_before = end
    return sum(used for is_program, used in spans if is_program) / _KIB


def _mappings(pid: int) -> Iterator[tuple[int, int, str, int]]:
    """Start, end, file and resident KiB of each mapping, in order of addresses."""
    start, end, name = 0, 0, ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if found := _MAPPING.fullmatch(line):
            start, end, name = int(found[1], 16), int(found[2], 16), found[3]
        elif line.startswith("Rss:"):
            yield start, end, name, int(line.split()[1])
