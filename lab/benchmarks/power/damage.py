"""Damages the files of a spool at rest, serves it as the forwarder does, and compares what comes out.

A spool must start, hand on nothing that was not stored, give no number twice, and report whatever it lost:
reports are events of the spool itself, and count once they are delivered.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from edge.errors import SpoolCorruptError
from edge.spool import BEFORE_EVERYTHING, Delivery, DeviceState, SpoolOrigin, StoredEvent
from edge.spool.database import PAGE_BYTES
from edge.spool.files import RESERVE_BYTES, reserve_of
from edge.spool.salvage import SHIFT
from edge.spool.store import Spool
from eventplane.device_reports import KEY_BYTES
from lab.benchmarks.power.cuts import BLOCK_BYTES, STILL, DiskSnapshot, SnapshotEvent, in_memory, snapshots
from lab.benchmarks.power.workload import DESTINATIONS, KEYS, KINDS, NAME, RANKS, state

A_SPOOL = 50
"""Damages of the snapshots of one workload."""

_OPENINGS = 6
_READ = 5
_LOG_HEADER_BYTES = 32
_SIZES = (PAGE_BYTES, BLOCK_BYTES)
_REPORTS = ("device.outbox", 1)

_Files = dict[str, bytearray]


@dataclass(slots=True)
class DamageOutcome:
    """The outcome of one damage: how many events are `lost`, and were `reported` at most (None: unknown).

    `fault`: what must not happen, with its kind before it.
    """

    fault: tuple[str, str] | None = None
    lost: int = 0
    reported: int | None = 0
    recovered: bool = False


@dataclass(slots=True)
class DamageFindings:
    """Outcomes by kind of damage: `counts` by kind and outcome. `faults` say how to repeat them."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: int = 0
    reported: int = 0
    faults: list[str] = field(default_factory=list)

    def count(self, kind: str, seed: int, what: str, outcome: DamageOutcome) -> None:
        """Add the outcome of a damage of `kind`; `what` describes it."""
        self.counts[kind, "damages"] += 1
        if outcome.fault:
            name, text = outcome.fault
            self.counts[kind, name] += 1
            self.faults.append(f"seed {seed}, {kind} ({what}): {name}: {text}")
        else:
            self.counts[kind, "reported" if outcome.lost else "lossless"] += 1
            self.counts[kind, "recovered"] += outcome.recovered
            self.counts[kind, "without a number"] += outcome.reported is None
        self.lost += outcome.lost
        self.reported += outcome.reported or 0

    def add(self, other: DamageFindings) -> None:
        """Add those of other damages."""
        self.counts.update(other.counts)
        self.lost += other.lost
        self.reported += other.reported
        self.faults += other.faults

    def sum(self, outcome: str) -> int:
        """Return how many damages of all kinds had this outcome."""
        return sum(count for (_, name), count in self.counts.items() if name == outcome)


def kind_of(seed: int) -> str:
    """Return the kind of damage that `seed` makes, a key of `DAMAGES`."""
    return list(DAMAGES)[seed % len(DAMAGES)]


def damage_at_random(seeds: Sequence[int]) -> DamageFindings:
    """Damage a spool for each of `seeds`, which alone determine where, how, and of which workload."""
    findings = DamageFindings()
    spool, taken = -1, list[DiskSnapshot]()
    with in_memory() as scratch:
        for seed in seeds:
            if seed // A_SPOOL != spool:
                spool = seed // A_SPOOL
                taken = snapshots(scratch / f"spool-{spool}", spool)
            random = Random(seed)
            snapshot = random.choice(taken)
            files = {name: bytearray(content) for name, content in snapshot.files.items()}
            kind = kind_of(seed)
            what = DAMAGES[kind](files, snapshot, random)
            directory = scratch / "damaged"
            findings.count(kind, seed, what, serve_damaged(snapshot, files, directory, random))
            shutil.rmtree(directory)
    return findings


def serve_damaged(snapshot: DiskSnapshot, files: _Files, directory: Path, random: Random) -> DamageOutcome:
    """Serve the damaged `files` of a snapshot in the new `directory`."""
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    reserve = reserve_of(directory / NAME)
    if not reserve.exists():
        _make_sparse(reserve)
    service = _Service(directory / NAME, snapshot, random)
    try:
        service.run()
        return service.outcome()
    except _WrongError as error:
        return DamageOutcome((error.kind, str(error)))
    except Exception as error:  # noqa: BLE001 (whatever it is, the forwarder would not have started)
        return DamageOutcome(("failed", repr(error)))


def _make_sparse(reserve: Path) -> None:
    """Make a reserve without writing it."""
    with reserve.open("wb") as file:
        file.truncate(RESERVE_BYTES)


class _WrongError(Exception):
    """The spool did what it must not: `kind` is "invented", "silent" or "failed"."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class _Service:
    """Does with the spool at `path` what the forwarder's loop does, until nothing is pending.

    Where it meets damage it opens the spool again. All numbers are those of the snapshot's epoch: each
    recovery lowers them by SHIFT.
    """

    def __init__(self, path: Path, snapshot: DiskSnapshot, random: Random) -> None:
        self._path = path
        self._snapshot = snapshot
        self._random = random
        self._stored = dict(snapshot.stored)
        self._texts = {(0, each.number): text for text, each in snapshot.stored.items()}
        self._expected = {each: row.json for each, row in snapshot.pending.items()}
        self._epochs = [snapshot.epochs[-1]]
        self._delivered: set[Delivery] = set()
        self._origins: list[tuple[int, SpoolOrigin]] = []
        self._discards: set[tuple[str, str, str, int, int]] = set()
        self._held: dict[tuple[str, str], DeviceState] = {}

    def run(self) -> None:
        """Raises `SpoolError` when it does not start, or goes on being damaged."""
        for _ in range(_OPENINGS):
            with contextlib.suppress(SpoolCorruptError):
                with Spool(self._path, STILL) as spool:
                    self._serve(spool)
                break
        with Spool(self._path, STILL) as spool:
            self._check_served(spool)

    def outcome(self) -> DamageOutcome:
        """Return what is lost. Raises `_WrongError` when it was not reported."""
        missing = sorted(self._expected.keys() - self._delivered, key=lambda each: each.sequence)
        told = [origin for _, origin in self._origins if origin.kind == "recovered"]
        most = None if any(each.lost is None for each in told) else sum(each.lost or 0 for each in told)
        ranges = [
            (first + SHIFT * (depth - 1), last + SHIFT * (depth - 1))
            for depth, origin in self._origins
            for first, last in origin.lost_ranges
        ]
        lost = {each.sequence for each in missing}
        silent = {each for each in lost if not any(first <= each <= last for first, last in ranges)}
        if most is not None and (silent or len(lost) > most):
            raise _WrongError(
                "silent", f"{missing[:5]} of {len(lost)}, {len(silent)} not within {ranges}, by {told}"
            )
        if not told and len(self._epochs) > 1:
            raise _WrongError("silent", "recovered without a report")
        self._check_discards(told)
        self._check_states(told)
        self._check_earlier(told)
        return DamageOutcome(None, len(lost), most, len(self._epochs) > 1)

    def _serve(self, spool: Spool) -> None:
        if spool.epoch != self._epochs[-1]:
            self._epochs.append(spool.epoch)
            if spool.origin.kind == "recovered" and spool.origin.lost_epoch not in (self._epochs[-2], ""):
                raise _WrongError("failed", f"recovered from {spool.origin.lost_epoch}")
        elif len(self._epochs) == 1 and not self._delivered and self._random.random() < 0.5:
            self._check_contents(spool)
        spool.recent_keys(4_096)
        found = {(kind, key): spool.device_state(kind, key) for kind in KINDS for key in KEYS}
        self._held |= {place: each for place, each in found.items() if each}
        self._report(spool)
        for n in range(3):
            destinations = self._random.sample(DESTINATIONS, self._random.choice((1, 2)))
            self._store(spool, {"new": n}, destinations, closes="manifests" if n == 1 else "")
        for destination in DESTINATIONS:
            for rank in RANKS:
                self._drain(spool, destination, rank)
        spool.tidy()

    def _report(self, spool: Spool) -> None:
        depth = len(self._epochs) - 1
        if spool.origin.kind != "resumed":
            self._store(spool, {"origin": [depth, *spool.origin]}, [_REPORTS[0]])
        while reports := spool.loss_reports():
            discards = [
                (each.destination, each.outcome.value, each.reason, first, last)
                for each in reports
                for first, last in each.ranges
            ]
            self._store(spool, {"discards": [depth, discards]}, [_REPORTS[0]], closes="discards")

    def _store(
        self, spool: Spool, content: dict[str, object], to: Sequence[str], *, closes: str = ""
    ) -> None:
        sequence, depth = spool.next_sequence, len(self._epochs) - 1
        number = sequence + SHIFT * depth
        text = json.dumps({"epoch": spool.epoch, "n": sequence, **content})
        if self._texts.setdefault((depth, number), text) != text:
            raise _WrongError("invented", f"number {sequence} of {spool.epoch} is given to another event")
        _, rank = _REPORTS
        self._stored[text] = SnapshotEvent(number, rank, dict.fromkeys(to))
        event = StoredEvent(sequence, rank, text, dict.fromkeys(to), self._random.randbytes(KEY_BYTES))
        spool.commit(
            [event],
            uptime_ms=spool.clock(),
            close_manifests=closes == "manifests",
            close_loss_reports=closes == "discards",
        )
        self._expected |= {Delivery(each, rank, number): text for each in to}

    def _drain(self, spool: Spool, destination: str, rank: int) -> None:
        after = BEFORE_EVERYTHING
        while rows := spool.read(destination, rank, after, _READ):
            for delivery, text, expires_ms, _ in rows:
                self._deliver(delivery, text, expires_ms)
            spool.commit([], [each.delivery for each in rows], uptime_ms=spool.clock())
            after = rows[-1].delivery.sequence

    def _deliver(self, delivery: Delivery, text: str, expires_ms: int | None) -> None:
        stored = self._stored.get(text)
        number = delivery.sequence + SHIFT * (len(self._epochs) - 1)
        if stored is None or (number, delivery.rank) != (stored.number, stored.rank):
            raise _WrongError("invented", f"{delivery} is {text[:80]!r}")
        expiries = (stored.destinations.get(delivery.destination, -1), None)
        if delivery.destination not in stored.destinations or expires_ms not in expiries:
            raise _WrongError("invented", f"{delivery} until {expires_ms}, stored for {stored.destinations}")
        before = self._snapshot.pending.get(delivery) if len(self._epochs) == 1 else None
        if before and before.expires_ms != expires_ms:
            raise _WrongError("invented", f"{delivery} until {expires_ms}, not {before.expires_ms}")
        self._delivered.add(delivery._replace(sequence=number))
        content = json.loads(text)
        if "origin" in content:
            depth, *fields = content["origin"]
            self._origins.append((depth, SpoolOrigin(*fields)))
        if "discards" in content:
            depth, discards = content["discards"]
            lowered = SHIFT * depth
            self._discards |= {(*kind, first + lowered, last + lowered) for *kind, first, last in discards}

    def _check_contents(self, spool: Spool) -> None:
        """A spool that reports nothing is as it was."""
        found, expected = state(spool), self._snapshot.contents
        differing = [name for name in expected if found[name] != expected[name]]
        if differing:
            name = differing[0]
            raise _WrongError(
                "silent", f"{differing}: {str(found[name])[:200]}, not {str(expected[name])[:200]}"
            )

    def _check_served(self, spool: Spool) -> None:
        if spool.origin.kind != "resumed" or spool.epoch != self._epochs[-1] or spool.loss_reports():
            raise _WrongError("failed", f"{spool.origin} after it was served")
        if left := {name: count for name, count in spool.backlog().items() if count}:
            raise _WrongError("failed", f"{left} pending after everything was delivered")

    def _check_discards(self, told: Sequence[SpoolOrigin]) -> None:
        missing = {
            each
            for each in self._snapshot.discards
            if not any(
                each[:3] == other[:3] and other[3] <= each[3] and each[4] <= other[4]
                for other in self._discards
            )
        }
        self._check_noted(len(missing), "ranges of discards", told)

    def _check_states(self, told: Sequence[SpoolOrigin]) -> None:
        texts = {(each.kind, each.key, each.state_version, each.json) for each in self._snapshot.states}
        for each in self._held.values():
            if (each.kind, each.key, each.state_version, each.json) not in texts:
                raise _WrongError("invented", f"a state: {each}")
        missing = 0
        for place, expected in self._snapshot.held.items():
            found = self._held.get(place)
            missing += found is None or found.state_version != expected.state_version
        self._check_noted(missing, "states", told)
        if self._held.keys() - self._snapshot.held.keys() and len(self._epochs) == 1:
            raise _WrongError("invented", "a state that had been deleted")

    def _check_noted(self, missing: int, what: str, told: Sequence[SpoolOrigin]) -> None:
        damage = " ".join(each.damage for each in told)
        noted = sum(int(each) for each in re.findall(rf"(\d+) {what} lost", damage))
        if missing > noted and f"unknown number of {what}" not in damage:
            raise _WrongError("silent", f"{missing} {what} lost, {noted} reported: {damage}")

    def _check_earlier(self, told: Sequence[SpoolOrigin]) -> None:
        """Check that a recovery also reports what an earlier one lost and had not reported yet."""
        earlier = self._snapshot.origin
        if earlier.kind != "recovered" or self._snapshot.contents["next"] != 1:
            return  # it was reported with the first event
        if any(each.lost is None for each in told):
            return
        if sum(each.lost or 0 for each in told) < (earlier.lost or 0) or not told:
            raise _WrongError("silent", f"{earlier} was never reported, but {told}")


def _flip(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    name, size = _choose(files, random)
    places = [random.randrange(size) for _ in range(random.choice((1, 1, 3, 10)))]
    for place in places:
        files[name][place] ^= 1 << random.randrange(8)
    return f"{name} at {places}"


def _zero(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    name, block, start = _block(files, random)
    _put(files[name], start, bytes(block))
    return f"{name}, {block} at {start}"


def _swap(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    name, block, start = _block(files, random)
    other = random.randrange(-(-len(files[name]) // block)) * block
    one, two = bytes(files[name][start : start + block]), bytes(files[name][other : other + block])
    _put(files[name], start, two)
    _put(files[name], other, one)
    return f"{name}, {block} at {start} and {other}"


def _truncate(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    name, size = _choose(files, random)
    size = random.randrange(size)
    if random.random() < 0.5:
        size -= size % PAGE_BYTES
    del files[name][size:]
    return f"{name} to {size}"


def _repeat(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    name, block, start = _block(files, random)
    other = random.randrange(-(-len(files[name]) // block)) * block
    _put(files[name], other, bytes(files[name][start : start + block]))
    return f"{name}, {block} from {start} at {other}"


def _older(files: _Files, snapshot: DiskSnapshot, random: Random) -> str:
    """Some blocks are those of some commits ago: the disk has not kept a write."""
    places = [
        (name, block, start)
        for name in files
        if name in _DATABASE and name in snapshot.older
        for block in _SIZES
        for start in range(0, min(len(files[name]), len(snapshot.older[name])), block)
        if files[name][start : start + block] != snapshot.older[name][start : start + block]
    ]
    if not places:
        return _zero(files, snapshot, random)
    chosen = random.sample(places, min(len(places), random.choice((1, 1, 1, 3, 10))))
    for name, block, start in chosen:
        _put(files[name], start, snapshot.older[name][start : start + block])
    return f"{chosen}"


def _beside(files: _Files, _snapshot: DiskSnapshot, random: Random) -> str:
    """Damage a file beside the database and its log, or one of those is gone, or one is there too many."""
    sides = sorted(files.keys() - _DATABASE)
    name = random.choice(
        (*sides, *sides, f"{NAME}.reserve", f"{NAME}.damaged", f"{NAME}.recovering", f"{NAME}.salvage")
    )
    how = random.choice(("junk", "gone", "empty", "cut", "flipped"))
    content = files.get(name) or bytearray(random.randbytes(600))
    match how:
        case "junk":
            content[:] = random.randbytes(len(content))
        case "empty":
            content.clear()
        case "cut":
            del content[random.randrange(len(content)) :]
        case "flipped":
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    files[name] = content
    if how == "gone":
        del files[name]
    return f"{name} {how}"


def _two(files: _Files, snapshot: DiskSnapshot, random: Random) -> str:
    kinds = [_flip, _zero, _swap, _truncate, _repeat, _older, _beside]
    first, second = random.choice(kinds)(files, snapshot, random), random.choice(kinds)
    if not any(files.get(name) for name in _DATABASE):
        second = _beside  # nothing is left of the others
    return f"{first} and {second(files, snapshot, random)}"


DAMAGES: dict[str, Callable[[_Files, DiskSnapshot, Random], str]] = {
    "bit flips": _flip,
    "zeroed blocks": _zero,
    "swapped blocks": _swap,
    "truncation": _truncate,
    "repeated blocks": _repeat,
    "older blocks": _older,
    "side files": _beside,
    "two damages": _two,
}
"""By kind: damages files, and describes how."""

_DATABASE = {NAME, f"{NAME}-wal"}


def _choose(files: _Files, random: Random) -> tuple[str, int]:
    """Choose the database, its log, or the header of the log (as the size that is to be damaged)."""
    places = [(name, len(files[name])) for name in sorted(_DATABASE) if files.get(name)]
    places += [
        (name, _LOG_HEADER_BYTES) for name, size in places if name != NAME and size > _LOG_HEADER_BYTES
    ]
    return random.choice(places)


def _block(files: _Files, random: Random) -> tuple[str, int, int]:
    name, size = _choose(files, random)
    block = random.choice(_SIZES)
    return name, block, random.randrange(-(-size // block)) * block


def _put(content: bytearray, start: int, data: bytes) -> None:
    """Write `data` at `start`, without making the content longer."""
    end = min(len(content), start + len(data))
    content[start:end] = data[: end - start]
