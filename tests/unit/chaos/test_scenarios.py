"""The scenario of the paper, and the command that plays one."""

import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

import lab.chaos.__main__ as command
from lab.chaos.scenarios import PAPER, PAPER_BEST_EFFORT
from lab.chaos.schedule import ScheduleError
from lab.errors import LocalError


@pytest.mark.source("P16")
def test_the_papers_test_is_repeated_with_its_numbers() -> None:
    for each in (PAPER, PAPER_BEST_EFFORT):
        assert (each.load.events, each.load.per_s) == (100_000, 1_000)
        strikes = each.plan(0, each.kinds, 1, 100)
        assert Counter(strike.kind for strike in strikes) == {"forwarder-kill": 10, "router-kill": 10}
        assert [strike.at_s for strike in strikes if strike.kind == "router-kill"] == [*range(10, 101, 10)]


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
