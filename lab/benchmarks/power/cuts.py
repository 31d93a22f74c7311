"""Cuts the power in a recorded run and opens what is left."""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import edge.spool.database
from edge.errors import SpoolError
from edge.spool import BEFORE_EVERYTHING, Delivery, DeviceState, PendingDelivery, SpoolOrigin
from edge.spool.files import marker_of, reserve_of
from edge.spool.salvage import SHIFT
from edge.spool.store import Spool
from edge.system import SYSTEM, Uptime
from lab.benchmarks.power.disk import KEPT, Call, Print, TracedDisk, record
from lab.benchmarks.power.workload import DESTINATIONS, KEYS, KINDS, LOG_BYTES, NAME, RANKS, Workload, state

BLOCK_BYTES = 4096
_COMMITS = (3, 25, 120)
_KEPT, _OLDER = 0.15, 12
_SMALL_LOG, _RECOVERED, _GOES_ON = 0.5, 0.3, 0.5
_EVERYTHING = 100_000


@dataclass(frozen=True, slots=True)
class SnapshotEvent:
    """An event stored as `text`: `number` is its sequence in the snapshot's epoch."""

    number: int
    rank: int
    destinations: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class DiskSnapshot:
    """The `files` of a spool by name, those of some commits before (`older`), and what is in them."""

    files: Mapping[str, bytes]
    older: Mapping[str, bytes]
    origin: SpoolOrigin
    epochs: tuple[str, ...]
    contents: Mapping[str, object]
    pending: Mapping[Delivery, PendingDelivery]
    stored: Mapping[str, SnapshotEvent]
    discards: frozenset[tuple[str, str, str, int, int]]
    held: Mapping[tuple[str, str], DeviceState]
    states: frozenset[DeviceState]


STILL: Final = SYSTEM._replace(uptime=lambda: Uptime("b" * 36, 1_000_000))
"""Has the same moment always, so that the files are the same each time."""


def snapshots(directory: Path, seed: int) -> list[DiskSnapshot]:
    """Run the workload in the new `directory` and take snapshots of its spool."""
    random = Random(seed)
    path = directory / NAME
    log_bytes = LOG_BYTES if random.random() < _SMALL_LOG else edge.spool.database.WAL_BYTES
    system = STILL._replace(random_bytes=random.randbytes)  # the same epochs each time
    with patch.object(edge.spool.database, "WAL_BYTES", log_bytes):
        camera = _Camera(path, random)
        camera.follow(Workload(path, random, system))
        if random.random() < _RECOVERED and path.stat().st_size > 4 * BLOCK_BYTES:
            content = bytearray(path.read_bytes())
            middle = len(content) // 2
            content[middle : middle + BLOCK_BYTES] = bytes(BLOCK_BYTES)
            path.write_bytes(content)
            marker_of(path).touch()
            with Spool(path, system) as spool:
                camera.take(spool)
            if random.random() < _GOES_ON:
                camera.follow(Workload(path, random, system))
    return camera.taken


class _Camera:
    """Takes snapshots of the spool at `path`."""

    def __init__(self, path: Path, random: Random) -> None:
        self._path = path
        self._random = random
        self._epochs: list[str] = []
        self._stored: dict[tuple[str, int], Any] = {}
        self._states: list[DeviceState] = []
        self._before: list[Mapping[str, bytes]] = []
        self.taken: list[DiskSnapshot] = []

    def follow(self, workload: Workload) -> None:
        workload.stored, workload.states = self._stored, self._states
        workload.run(self._random.choice(_COMMITS), lambda: None, self._after)
        with Spool(self._path, STILL) as spool:
            contents = self._read(spool)
        self.taken.append(self._snapshot(**contents))  # closed

    def _after(self, spool: Spool) -> None:
        if self._random.random() < _KEPT or not self._before:
            self.take(spool)

    def take(self, spool: Spool) -> None:
        """Copy the files as the process leaves them when it is killed now."""
        self.taken.append(self._snapshot(**self._read(spool)))

    def _snapshot(self, **contents: Any) -> DiskSnapshot:
        files = read_files(self._path)
        older = self._random.choice(self._before[-_OLDER:]) if self._before else files
        self._before.append(files)
        return DiskSnapshot(files, older, **contents)

    def _read(self, spool: Spool) -> dict[str, Any]:
        if spool.epoch not in self._epochs:
            self._epochs.append(spool.epoch)
            self._before.clear()  # a new file: blocks of the one before are not older ones of it
        rows = [
            each
            for destination in DESTINATIONS
            for rank in RANKS
            for each in spool.read(destination, rank, BEFORE_EVERYTHING, _EVERYTHING)
        ]
        stored = {
            each.json: SnapshotEvent(
                sequence - SHIFT * (len(self._epochs) - 1 - self._epochs.index(epoch)),
                each.rank,
                dict(each.destinations),
            )
            for (epoch, sequence), each in self._stored.items()
        }
        discards = frozenset(
            (each.destination, each.outcome.value, each.reason, first, last)
            for each in spool.loss_reports()
            for first, last in each.ranges
        )
        held = {(kind, key): spool.device_state(kind, key) for kind in KINDS for key in KEYS}
        return {
            "origin": spool.origin,
            "epochs": tuple(self._epochs),
            "contents": state(spool),
            "pending": {each.delivery: each for each in rows},
            "stored": stored,
            "discards": discards,
            "held": {place: each for place, each in held.items() if each is not None},
            "states": frozenset(self._states),
        }


def read_files(path: Path) -> dict[str, bytes]:
    """Return the contents of all files of the spool at `path` but its reserve and its lock."""
    beside = {reserve_of(path).name, f"{path.name}.lock"}
    return {
        each.name: each.read_bytes()
        for each in path.parent.iterdir()
        if each.name not in beside and ".damaged-" not in each.name
    }


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
