"""A fuzzer that never ran has found nothing, and that is a finding."""

import sys
from pathlib import Path

import pytest

import tests.fuzz.__main__ as command

COUNTS = """echo '{"accepted": 7}' > mqtt/counts.json"""


@pytest.mark.parametrize(("program", "meets"), [("exit 1", False), ("kill -KILL $$", False), (COUNTS, True)])
def test_a_fuzzer_meets_its_aim_only_with_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, *, meets: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncd {tmp_path}\n{program}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    missed = [each.name for each in command.figures("mqtt", 1) if each.met is False]
    assert missed == ([] if meets else ["mqtt_unforeseen"])
