from __future__ import annotations

import sys
from pathlib import Path

import pytest

import local.demo.__main__ as command


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["--homes", "0"], 2, "HOMES=0"),
        (["--events", "abc"], 2, "EVENTS=abc"),
        (["--data", "[/nowhere]"], 1, "[/nowhere]"),
    ],
)
def test_wrong_words_are_explained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
    status: int,
    complaint: str,
) -> None:
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo", *words])
    assert command.main() == status
    assert complaint in capsys.readouterr().out
