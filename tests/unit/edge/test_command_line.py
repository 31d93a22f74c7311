"""The command line of both programs: what they take, and exit status 2 for everything else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edge.command_line import EX_WRONG_COMMAND_LINE, read_command_line

USAGE = "usage: program --settings FILE [--check]\n"


def read(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Path, frozenset[str]]:
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    return read_command_line(USAGE, "--check")


@pytest.mark.source("P13")
def test_the_file_and_the_flags_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, "--settings", "a.toml") == (Path("a.toml"), frozenset())
    assert read(monkeypatch, "--check", "--settings=a.toml") == (Path("a.toml"), frozenset({"--check"}))


@pytest.mark.parametrize(
    "arguments", [[], ["--check"], ["--settings"], ["--settings", "a", "b"], ["--settings", "a", "--quiet"]]
)
def test_anything_else_ends_with_the_status_that_systemd_does_not_try_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(monkeypatch, *arguments)
    assert ended.value.code == EX_WRONG_COMMAND_LINE == 2
    assert capsys.readouterr().err.endswith(USAGE)


def test_help_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(monkeypatch, "-h")
    assert ended.value.code == 0
    assert capsys.readouterr().out == USAGE
