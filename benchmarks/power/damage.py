"""Damages the files of a spool at rest at random, delivers what is left, and compares that with what was
stored.

Bits flip, blocks are zeroed or change places, the end is cut off, in the database or in its log. A spool must
start each time, deliver nothing that was not stored, and report whatever it lost.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from edge.errors import SpoolCorruptError, SpoolError
from edge.spool import BEFORE_EVERYTHING, Delivery, Spool, SpoolOrigin, StoredEvent
from edge.spool.database import PAGE_BYTES
from edge.spool.salvage import SHIFT

_DESTINATIONS = ("device.outbox", "call.inbox")
_RANKS = (0, 1)
_QUEUES = [(destination, rank) for destination in _DESTINATIONS for rank in _RANKS]
_OPENINGS = 6
_BLOCK_BYTES = 4096


@dataclass(slots=True)
class DamageFindings:
    """Of `damages`: how many were `harmless`, `saved` everything, lost events and `reported` them.

    The rest are faults: losses that were not reported (`silent`), texts that nobody stored (`invented`),
    spools that did not start (`failed`). `unknown`, of those reported: how many could not say how much is
    lost.
    """

    damages: int = 0
    harmless: int = 0
    saved: int = 0
    reported: int = 0
    unknown: int = 0
    silent: int = 0
    invented: int = 0
    failed: int = 0
    first: list[str] = field(default_factory=list)


class StoredContents:
    """A spool with random contents, as a stop or a crash leaves it; `pending` has what must be delivered."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.texts: dict[int, str] = {}
        self.pending: set[tuple[str, int]] = set()
        made = directory / "made" / "spool.db"
        self.path = directory / "left" / "spool.db"
        with Spool(made) as spool:
            for _ in range(random.choice((5, 40, 150))):
                self._commit(spool, random)
            if random.random() < 0.5:
                shutil.copytree(made.parent, self.path.parent)
        if not self.path.exists():
            shutil.copytree(made.parent, self.path.parent)

    def _commit(self, spool: Spool, random: Random) -> None:
        first = spool.next_sequence
        events = [self._event(n, random) for n in range(first, first + random.choice((0, 1, 3, 12)))]
        done = [
            each.delivery
            for queue in _QUEUES
            for each in spool.read(*queue, BEFORE_EVERYTHING, random.choice((0, 2, 6)))
            if random.random() < 0.8
        ]
        spool.commit(events, done, uptime_ms=first)
        self.pending -= {(each.destination, each.sequence) for each in done}

    def _event(self, number: int, random: Random) -> StoredEvent:
        text = json.dumps({"n": number, "pad": random.choice("abc") * random.choice((1, 300, 3000))})
        destinations = random.sample(_DESTINATIONS, random.choice((1, 1, 2)))
        self.texts[number] = text
        self.pending |= {(each, number) for each in destinations}
        rank = random.choice(_RANKS)
        return StoredEvent(number, rank, text, dict.fromkeys(destinations), number.to_bytes(16, "big"))


def damage_at_random(directory: Path, seed: int, damages: int) -> DamageFindings:
    """Make a spool in the new `directory` and damage `damages` copies of it, each in one way."""
    findings = DamageFindings()
    stored = StoredContents(directory, Random(seed))
    for number in range(damages):
        random = Random(f"{seed} {number}")
        path = _damaged(stored, directory / "damaged", random)
        origins: list[SpoolOrigin] = []
        findings.damages += 1
        try:
            fault = _compare(stored, list(_drain(path, origins)), origins, findings)
        except SpoolError as error:
            findings.failed += 1
            fault = str(error)
        if fault:
            findings.first.append(f"seed {seed}, damage {number}: {fault}")
        shutil.rmtree(path.parent)
    return findings


def _flip(content: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 3, 10))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _zero(content: bytearray, random: Random) -> None:
    size = random.choice((PAGE_BYTES, _BLOCK_BYTES))
    start = random.randrange(max(1, len(content) // size)) * size
    content[start : start + size] = bytes(len(content[start : start + size]))


def _swap(content: bytearray, random: Random) -> None:
    size = random.choice((PAGE_BYTES, _BLOCK_BYTES))
    one, other = (random.randrange(max(1, len(content) // size)) * size for _ in range(2))
    first, second = content[one : one + size], content[other : other + size]
    if len(first) == len(second):
        content[one : one + size], content[other : other + size] = second, first


def _truncate(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


_DAMAGES: list[Callable[[bytearray, Random], None]] = [_flip, _zero, _swap, _truncate]


def _damaged(stored: StoredContents, directory: Path, random: Random) -> Path:
    """Copy a spool and damage one file of it: the database, or its log."""
    shutil.copytree(stored.path.parent, directory)
    path = directory / stored.path.name
    files = [each for each in (path, path.with_name(path.name + "-wal")) if each.exists()]
    file = random.choice(files)
    if content := bytearray(file.read_bytes()):
        random.choice(_DAMAGES)(content, random)
        file.write_bytes(content)
    return path


def _drain(path: Path, origins: list[SpoolOrigin]) -> Iterator[tuple[Delivery, str]]:
    """Deliver everything, reopening the spool where damage is met; `origins` are those of recovered spools.

    Raises `SpoolError` when it does not start, or goes on being damaged.
    """
    for opening in range(_OPENINGS):
        try:
            with Spool(path) as spool:
                if spool.origin.kind == "recovered" and spool.origin not in origins:
                    origins.append(spool.origin)
                for queue in _QUEUES:
                    after = BEFORE_EVERYTHING
                    while rows := spool.read(*queue, after, 5):
                        yield from ((each.delivery, each.json) for each in rows)
                        spool.commit([], [each.delivery for each in rows], uptime_ms=0)
                        after = rows[-1].delivery.sequence
                return
        except SpoolCorruptError:
            if opening == _OPENINGS - 1:
                raise


def _compare(
    stored: StoredContents,
    delivered: list[tuple[Delivery, str]],
    origins: list[SpoolOrigin],
    findings: DamageFindings,
) -> str | None:
    """Return the fault, None when nothing was lost or it was reported."""
    found = set()
    for delivery, text in delivered:
        number = delivery.sequence % SHIFT
        if stored.texts.get(number) != text:
            findings.invented += 1
            return f"{text[:60]!r} was delivered as event {number}"
        found.add((delivery.destination, number))
    missing = {number for _, number in stored.pending - found}
    lost = [origin.lost for origin in origins]
    if not missing:
        findings.harmless += not origins
        findings.saved += bool(origins)
        return None
    if None in lost:
        findings.reported += 1
        findings.unknown += 1
        return None
    ranges = [each for origin in origins for each in origin.lost_ranges]
    told = {number % SHIFT for first, last in ranges for number in range(first, last + 1)}
    if missing <= told and len(missing) <= sum(each or 0 for each in lost):
        findings.reported += 1
        return None
    findings.silent += 1
    return f"lost {sorted(missing)}, reported {lost} of {ranges}"
