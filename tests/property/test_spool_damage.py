"""Random damage at rest: the spool always starts, hands on what was stored only, and reports what it lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from edge.errors import SpoolCorruptError
from edge.spool import BEFORE_EVERYTHING, Delivery, Spool, SpoolOrigin, StoredEvent
from edge.spool.database import PAGE_BYTES
from edge.spool.salvage import SHIFT
from tests.examples import examples
from tests.unit.edge.spools import key

pytestmark = pytest.mark.source("F-W1", "C-W3")

DESTINATIONS = ("device.outbox", "call.inbox")
RANKS = (0, 1)
QUEUES = [(destination, rank) for destination in DESTINATIONS for rank in RANKS]
SPOOLS = 6
OPENINGS = 6
BLOCK_BYTES = 4096


class Stored:
    """A spool with random contents, as a stop or a crash leaves it. `pending` has what must be delivered."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.texts: dict[int, str] = {}
        self.pending: set[tuple[str, int]] = set()
        path = directory / "made" / "spool.db"
        with Spool(path) as spool:
            for _ in range(random.choice((5, 40, 150))):
                self._commit(spool, random)
            self.path = directory / "left" / "spool.db"
            if random.random() < 0.5:
                shutil.copytree(path.parent, self.path.parent)
        if not self.path.exists():
            shutil.copytree(path.parent, self.path.parent)

    def _commit(self, spool: Spool, random: Random) -> None:
        first = spool.next_sequence
        arrivals = []
        for number in range(first, first + random.choice((0, 1, 3, 12))):
            text = json.dumps({"n": number, "pad": random.choice("abc") * random.choice((1, 300, 3000))})
            destinations = random.sample(DESTINATIONS, random.choice((1, 1, 2)))
            arrivals.append(
                StoredEvent(number, random.choice(RANKS), text, dict.fromkeys(destinations), key(number))
            )
            self.texts[number] = text
            self.pending |= {(each, number) for each in destinations}
        done = [
            each.delivery
            for queue in QUEUES
            for each in spool.read(*queue, BEFORE_EVERYTHING, random.choice((0, 2, 6)))
            if random.random() < 0.8
        ]
        spool.commit(arrivals, done, uptime_ms=first)
        self.pending -= {(each.destination, each.sequence) for each in done}


def flip(content: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 3, 10))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def zero(content: bytearray, random: Random) -> None:
    size = random.choice((PAGE_BYTES, BLOCK_BYTES))
    start = random.randrange(max(1, len(content) // size)) * size
    content[start : start + size] = bytes(len(content[start : start + size]))


def swap(content: bytearray, random: Random) -> None:
    size = random.choice((PAGE_BYTES, BLOCK_BYTES))
    one, other = (random.randrange(max(1, len(content) // size)) * size for _ in range(2))
    first, second = content[one : one + size], content[other : other + size]
    if len(first) == len(second):
        content[one : one + size], content[other : other + size] = second, first


def truncate(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


DAMAGES: list[Callable[[bytearray, Random], None]] = [flip, zero, swap, truncate]


def damaged(stored: Stored, directory: Path, random: Random) -> Path:
    """A copy of a spool with one file of it damaged: the database, or its log."""
    shutil.copytree(stored.path.parent, directory)
    files = [each for each in (stored.path.name, f"{stored.path.name}-wal") if (directory / each).exists()]
    file = directory / random.choice(files)
    if content := bytearray(file.read_bytes()):
        random.choice(DAMAGES)(content, random)
        file.write_bytes(content)
    return directory / stored.path.name


def drain(path: Path, births: list[SpoolOrigin]) -> Iterator[tuple[Delivery, str]]:
    """Deliver everything, as often as it takes; `births` are how the spool came to be, each time anew."""
    for _ in range(OPENINGS):
        try:
            with Spool(path) as spool:
                if spool.origin.kind == "recovered" and spool.origin not in births:
                    births.append(spool.origin)
                for queue in QUEUES:
                    after = BEFORE_EVERYTHING
                    while rows := spool.read(*queue, after, 5):
                        yield from ((each.delivery, each.json) for each in rows)
                        spool.commit([], [each.delivery for each in rows], uptime_ms=0)
                        after = rows[-1].delivery.sequence
                assert sum(spool.backlog().values()) == 0
                return
        except SpoolCorruptError:
            continue
    pytest.fail(f"damage was met at each of {OPENINGS} openings")


@pytest.mark.parametrize("seed", range(SPOOLS))
def test_nothing_is_lost_silently_and_nothing_is_invented(tmp_path: Path, seed: int) -> None:
    stored = Stored(tmp_path, Random(seed))
    for n in range(examples(40)):
        random = Random(f"{seed} {n}")
        path = damaged(stored, tmp_path / f"damaged-{n}", random)
        births: list[SpoolOrigin] = []
        delivered = set()
        for delivery, text in drain(path, births):
            number = json.loads(text)["n"]
            assert stored.texts[number] == text
            assert delivery.sequence % SHIFT == number
            delivered.add((delivery.destination, number))
        missing = {number for _, number in stored.pending - delivered}
        reported = {
            number % SHIFT
            for birth in births
            for first, last in birth.lost_ranges
            for number in range(first, last + 1)
        }
        if all(birth.lost is not None for birth in births):
            assert missing <= reported, (n, births)
            assert len(missing) <= sum(birth.lost or 0 for birth in births), (n, births)
        shutil.rmtree(path.parent)
