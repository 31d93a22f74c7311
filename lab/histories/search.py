"""Search for histories that break a promise, and minimize their stories."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import process_time

from contract import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from lab.histories.history import History
from lab.histories.keys import with_keys
from lab.histories.oracles import OracleFinding, judged
from lab.histories.ordered import with_order
from lab.histories.shared import shared
from lab.histories.story import DRILLED, HEAVY, LIGHT, Story, StorySize, StoryStep, draw

GARBAGE = 500_000
"""After so many new objects garbage is collected; Python's default takes a fifth of a history's time."""

HEAVY_EVERY = 20
"""The last of each so many stories is a heavy one, and every second of the others one with a drill."""


def quieten() -> None:
    """Discard the metrics that the functions print, and their logs; let this process run many histories."""
    silence_logs()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process


def silence_logs() -> None:
    """Discard what the simulated programs log."""
    logging.disable(logging.CRITICAL)


@cache
def shipped() -> Contract:
    """Return the shipped contract, in which readers leave receipts as well; made once in a process."""
    document = contract_document(load_contract())
    document["participants"]["alarm-centre"]["inbox"]["receipts"] = True
    document["participants"]["care-analytics"]["inbox"] |= {"receipts": True, "receipts_percent": 60}
    return compile_contract(document, "simulated")


def story_of(seed: int) -> Story:
    """Return the story of a seed, of its size."""
    return with_keys(seed, with_order(seed, draw(seed, size_of(seed))))


def size_of(seed: int) -> StorySize:
    """Return the size of the story of a seed."""
    if seed % HEAVY_EVERY == HEAVY_EVERY - 1:
        return HEAVY
    return DRILLED if seed % 2 else LIGHT


def told_all(seeds: Iterable[int]) -> list[tuple[int, Told]]:
    """Run the stories of `seeds`."""
    return [(seed, told(story_of(seed), shipped())) for seed in seeds]


@dataclass(frozen=True, slots=True)
class Told:
    """The `findings` of a history, how often each fault was in it, and the CPU seconds that it took."""

    findings: list[OracleFinding]
    faults: dict[str, int]
    took_s: float


def told(story: Story, contract: Contract) -> Told:
    """Run a story and return what was found."""
    began = process_time()
    history = History(story, contract)
    findings = findings_of(history)
    history.engine.close()
    return Told(findings, dict(history.faults), process_time() - began)


def findings_of(history: History) -> list[OracleFinding]:
    """Run a history and return its findings. An unexpected exception is a finding too."""
    with shared():
        try:
            history.run()
        except Exception as error:  # noqa: BLE001 - crashes of the product are searched for
            return [OracleFinding(f"raised {type(error).__name__}", str(error)[:300])]
        return judged(history)


def minimized(story: Story, kind: str, contract: Contract, may_go_on: Callable[[], bool]) -> Story:
    """Return the smallest story found, while it `may_go_on`, that still has a finding of this `kind`.

    It has no finding that `story` does not have: that would be about what was left out.
    """

    def shows(candidate: Story) -> bool:
        kinds = {each.kind for each in told(candidate, contract).findings}
        return kind in kinds and kinds <= known

    known = {each.kind for each in told(story, contract).findings}

    parts = 2
    while len(story.decisions) > 1 and may_go_on():
        for some in _parts(story.decisions, parts):
            if may_go_on() and shows(shorter := story.without(some)):
                story, parts = shorter, max(2, parts - 1)
                break
        else:
            if parts >= len(story.decisions):
                break
            parts = min(2 * parts, len(story.decisions))
    plain = replace(story, order=0)
    return plain if may_go_on() and shows(plain) else story


def _parts(decisions: Sequence[StoryStep], number: int) -> Iterator[Sequence[StoryStep]]:
    """Cut into a `number` of parts of similar size, the last first: late decisions matter least."""
    size = max(1, len(decisions) // number)
    for end in range(len(decisions), 0, -size):
        yield decisions[max(0, end - size) : end]
