"""What the command leaves behind when a run comes to nothing, and that none is disturbed."""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

import local.chaos.__main__ as command
from local.chaos.schedule import ScheduleError
from local.errors import LocalError
from local.process import alone


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


def test_a_second_run_of_a_scenario_leaves_the_first_in_peace(
    figures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with alone(figures.parent / "short.lock"):
        assert command.main() == 1
    assert "wait for it" in capsys.readouterr().err
    assert figures.exists()
