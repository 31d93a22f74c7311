"""The scenarios, the schedule of outages, and the command that plays one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

import local.chaos.__main__ as command
from local.chaos.faults import InjectedFault
from local.chaos.outages import episodes
from local.chaos.scenarios import PAPER, PAPER_BEST_EFFORT
from local.chaos.schedule import KINDS, LONG, SERVICES, ScheduleError, cloud_faults_plan
from local.errors import LocalError


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (PAPER, PAPER_BEST_EFFORT):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]


def names(seed: int, kinds: tuple[str, ...], seconds: float) -> list[tuple[str, ...]]:
    strikes = cloud_faults_plan(seed, kinds, 2, seconds)
    return [
        each.kinds
        for each in episodes(InjectedFault(each.kind, "home-1", each.at_s, each.until_s) for each in strikes)
    ]


def test_every_kind_strikes_alone_and_every_two_services_together() -> None:
    found = names(1, KINDS, 1_785)
    alone = [kinds[0] for kinds in found if len(kinds) == 1]
    assert set(alone) == set(KINDS)
    assert {kind for kind in alone if alone.count(kind) == 2} == set(LONG)
    together = {frozenset(kind.partition("-")[0] for kind in kinds) for kinds in found if len(kinds) == 2}
    services = [*SERVICES, "router"]
    assert len(together) == len(services) * (len(services) - 1) // 2 - 1  # one queue and all of SQS
    assert names(1, KINDS, 1_785) == found
    assert names(2, KINDS, 1_785) != found


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The figures of an earlier run."""
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["chaos", "short"])
    path = tmp_path / "short.json"
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    ("end", "status"),
    [(LocalError("no tool"), 1), (ScheduleError("no room"), 2), (KeyboardInterrupt(), 130)],
)
def test_a_run_that_comes_to_nothing_leaves_no_figures_of_another(
    monkeypatch: pytest.MonkeyPatch, figures: Path, end: BaseException, status: int
) -> None:
    def ends(*_: object) -> NoReturn:
        raise end

    monkeypatch.setattr(command, "run", ends)
    assert command.main() == status
    assert not figures.exists()
