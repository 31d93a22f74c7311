"""Cuts the power in a recorded run and opens what is left."""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from edge.errors import SpoolError
from edge.spool.store import Spool
from edge.system import SYSTEM
from lab.benchmarks.power.disk import KEPT, Call, Print, TracedDisk, record
from lab.benchmarks.power.workload import NAME, state

MEMORY = Path("/dev/shm")  # noqa: S108 (what is written there is synced at no cost)
_JUNK_BYTES = 32 * 1024


@dataclass(slots=True)
class Findings:
    """Results of `cuts`: how many `lost` (or brought back) something, how many `failed` to start."""

    cuts: int = 0
    lost: int = 0
    failed: int = 0
    first: list[str] = field(default_factory=list)


def record_run(directory: Path, seed: int, commits: int) -> list[Call]:
    """Return the calls of the workload in the new `directory`."""
    return record(directory, "commit", str(directory / NAME), str(seed), str(commits))


def cut_everywhere(calls: Sequence[Call], cuts: int, seed: int) -> Findings:
    """Spread `cuts` over the run, and compare what is left with what the process has printed."""
    findings = Findings()
    expected, after = _Expected(calls), 0
    for place, kept, path in leftovers(calls, cuts, seed):
        for call in calls[after:place]:
            expected.apply(call)
        after = place
        findings.cuts += 1
        problem = _problem(path, expected)
        if problem:
            kind, text = problem
            findings.lost += kind == "lost"
            findings.failed += kind == "failed"
            findings.first.append(f"seed {seed}, call {place}, {kept} kept: {text}")
    return findings


def leftovers(calls: Sequence[Call], cuts: int, seed: int) -> Iterator[tuple[int, str, Path]]:
    """For each cut how many calls were made, what was kept, and the spool in a directory as it is left."""
    random = Random(seed)
    disk, after = TracedDisk(), 0
    with in_memory() as scratch:
        for place in sorted(random.choices(range(len(calls) + 1), k=cuts)):
            for call in calls[after:place]:
                disk.apply(call)
            after = place
            kept = random.choice(list(KEPT))
            directory = scratch / "cut"
            directory.mkdir()
            for name, contents in disk.cut(random, kept).items():
                # The shared memory file is no file: whatever is in it must not be trusted.
                junk = name.endswith("-shm")
                (directory / name).write_bytes(random.randbytes(_JUNK_BYTES) if junk else contents)
            yield place, kept, directory / NAME
            shutil.rmtree(directory)


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """Yield a directory that is synced at no cost, if this machine has one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


class _Expected:
    """The states in which the spool may be found, by what the process has printed so far."""

    def __init__(self, calls: Sequence[Call]) -> None:
        lines = (json.loads(call.line) for call in calls if isinstance(call, Print))
        self._states = [line["state"] for line in lines if "state" in line]
        self._committed = 0
        self._committing = False

    def apply(self, call: Call) -> None:
        if isinstance(call, Print):
            self._committing = "state" not in json.loads(call.line)
            self._committed += not self._committing

    def problem(self, found: dict[str, Any]) -> str | None:
        """Return how `found` differs; a commit in flight is there wholly or not at all."""
        if not self._committed:
            return None  # nothing was acknowledged, and an epoch that nobody saw may be another
        allowed = self._states[self._committed - 1 : self._committed + self._committing]
        if found in allowed:
            return None
        wanted = allowed[0]
        return "; ".join(
            f"{key}: {found[key]} is not {wanted[key]}" for key in found if found[key] != wanted[key]
        )


def _problem(path: Path, expected: _Expected) -> tuple[str, str] | None:
    try:
        return _check(path, expected)
    except (SpoolError, AssertionError) as error:
        return "failed", str(error)


def _check(path: Path, expected: _Expected) -> tuple[str, str] | None:
    with Spool(path, SYSTEM) as spool:
        if spool.origin.kind == "recovered":
            return "failed", spool.origin.damage
        problem = expected.problem(state(spool))
    if problem:
        return "lost", problem
    with contextlib.closing(sqlite3.connect(path)) as db:
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    return None if verdict == "ok" else ("failed", verdict)
