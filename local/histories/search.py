"""Looks for a history that breaks a promise, and cuts its story down to the decisions that matter."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from contract import load_contract
from eventplane.contract import Contract
from local.histories.history import History
from local.histories.oracles import Finding, judged
from local.histories.story import HEAVY, LIGHT, Decision, Story, draw

HEAVY_EVERY = 20
"""One story in so many is a heavy one."""


def quieten() -> None:
    """Let the functions' metrics, which they print, go nowhere."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process


@cache
def shipped() -> Contract:
    """The contract that is told by; what the programs log is not shown."""
    logging.disable(logging.CRITICAL)
    return load_contract()


def story_of(seed: int) -> Story:
    """The story of a seed, heavy or light."""
    return draw(seed, HEAVY if seed % HEAVY_EVERY == HEAVY_EVERY - 1 else LIGHT)


def told_all(first: int, number: int) -> list[tuple[int, Told]]:
    """Tell the stories of a `number` of seeds."""
    return [(seed, told(story_of(seed), shipped())) for seed in range(first, first + number)]


@dataclass(frozen=True, slots=True)
class Told:
    """A story that was told: its `findings`, and what failed in it."""

    story: Story
    findings: tuple[Finding, ...]
    faults: dict[str, int]


def told(story: Story, contract: Contract) -> Told:
    """Tell a story and judge it. What a program raises unforeseen is a finding too."""
    history = History(story, contract)
    try:
        history.run()
    except Exception as error:  # noqa: BLE001 - a crash of the product is what is looked for
        return Told(
            story, (Finding(f"raised {type(error).__name__}", str(error)[:300]),), dict(history.faults)
        )
    return Told(story, tuple(sorted(set(judged(history)))), dict(history.faults))


def minimized(story: Story, kind: str, contract: Contract, may_go_on: Callable[[], bool]) -> Story:
    """Return the smallest story found, while it `may_go_on`, that still has a finding of this `kind`."""

    def shows(candidate: Story) -> bool:
        return any(each.kind == kind for each in told(candidate, contract).findings)

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


def _parts(decisions: Sequence[Decision], number: int) -> Iterator[Sequence[Decision]]:
    """Cut into a `number` of parts of nearly one size, the last first: what came last matters least."""
    size = max(1, len(decisions) // number)
    for end in range(len(decisions), 0, -size):
        yield decisions[max(0, end - size) : end]
