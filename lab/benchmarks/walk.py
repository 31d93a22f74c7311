"""`python -m lab.benchmarks.walk`: the product's files that run for one alarm, to build/bench/walk.json.

A simulated home (`lab.histories`) sends an alarm when everything is connected and warm. A file counts, with
all its lines, if a function of it is called on the way to the reader, or, for the audit, in the archive's
writers or in the audit of the day. What models of the simulator stand for counts as well (`REPLACED`).
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from contract import load_contract
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.small import audit_small
from lab.benchmarks.results import Benchmark, Figure
from lab.histories.engine import Engine
from lab.histories.history import History
from lab.histories.oracles.audited import ended_ms, request_of
from lab.histories.story import Story, StoryStep

ROOT: Final = Path(__file__).parents[2]
READER: Final = "alarm-centre"
_PACKAGES: Final = (
    *("contract", "edge", "eventplane", "glue_jobs", "lambdas", "parts"),
    *("eventplane_aws", "eventplane_client", "eventplane_mqtt"),
)
_PRODUCT: Final = tuple(f"{ROOT / each}/" for each in _PACKAGES)
_MODELS: Final = f"{ROOT / 'parts' / 'simulate'}/"

REPLACED: Final = (
    "edge/daemon.py",
    "eventplane_mqtt/connection.py",
    "eventplane_mqtt/transport.py",
    "lambdas/common/queue_function.py",
    "lambdas/router/handler.py",
)
"""The loops and entries that models of the simulator stand for."""

_WARM_S, _SAID_S, _ENDS_S = 397.0, 400.3, 401.3
"""When the first alarm is said, when the one that is traced, and when that was settled long ago, seconds."""

_STORY: Final = Story(
    1,
    0,
    tuple(
        StoryStep(at_s, "say", "home-1", text="org.eventplane.alarm.keyword.v1")
        for at_s in (_WARM_S, _SAID_S)
    ),
)
_WRITERS: Final = ("tap", "ledger", "receipts")


@dataclass
class Walk:
    """The files of an alarm's way, relative to the repository: `to_reader`, and those of its `evidence`.

    `handled_s` are the times at which its reader handled it, virtual seconds; `audit` is that of its day.
    """

    audit: Audit | None = None
    handled_s: list[float] = field(default_factory=list)
    to_reader: set[str] = field(default_factory=lambda: {*REPLACED})
    evidence: set[str] = field(default_factory=set)

    @property
    def files(self) -> set[str]:
        """All of them."""
        return self.to_reader | self.evidence


@contextmanager
def _noting(walk: Walk, engine: Engine | None) -> Iterator[None]:
    """Add to `walk` what is called: by the tasks of `engine` on an alarm's way, or all of it, as evidence."""

    def note(frame: FrameType, what: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if what != "call" or not file.startswith(_PRODUCT) or file.startswith(_MODELS):
            return
        into = walk.evidence if engine is None else _part(walk, engine)
        if into is not None:
            into.add(file.removeprefix(f"{ROOT}/"))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _part(walk: Walk, engine: Engine) -> set[str] | None:
    """Return where what the running task calls belongs: None if it is not on the alarm's way."""
    if engine.now_s < _SAID_S:
        return None
    name = engine.task.name if engine.task else ""
    if name in _WRITERS:
        return walk.evidence
    is_on_way = not name or name.startswith(("router-urgent", READER))
    return walk.to_reader if is_on_way and engine.now_s < _ENDS_S else None


def walk() -> Walk:
    """Send an alarm through the simulated plane, audit its day, and return what ran for it."""
    found = Walk()
    history = History(_STORY, load_contract())
    with _noting(found, history.engine):
        history.run()
    ((_, source, id),) = {
        each for each in history.handled.settled if each[0] == READER and each[2].endswith("-2")
    }
    found.handled_s = history.handled.done[READER, source, id]
    with _noting(found, None):
        found.audit = audit_small(request_of(history.cloud, ended_ms(history)))
    return found


def lines(files: Iterable[str]) -> int:
    """Return how many lines these files have."""
    return sum(len((ROOT / each).read_text().splitlines()) for each in files)


def figures() -> Iterator[Figure]:
    """Yield how many files and lines an alarm passes to its reader, and with its audit."""
    found = walk()
    for name, files, most_files, most_lines in (
        ("to_reader", found.to_reader, 60, 13_000),
        ("with_audit", found.files, 90, None),
    ):
        yield Figure(f"{name}_files", len(files), "files", most_files, higher_is_better=False)
        yield Figure(f"{name}_lines", lines(files), "lines", most_lines)
    for each in sorted(found.files, key=lambda each: (each not in found.to_reader, each)):
        print("to the reader" if each in found.to_reader else "its evidence", each)


BENCHMARK = Benchmark("walk", {"alarm": lambda _: figures()}, "none: files and lines that run")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
