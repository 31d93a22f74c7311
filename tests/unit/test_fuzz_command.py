"""A fuzzer that never ran has found nothing, and that is a finding."""

import sys
from pathlib import Path

import pytest

import tests.fuzz.__main__ as command


@pytest.mark.parametrize("program", ["exit 1", "exit 0", "kill -KILL $$"])
def test_a_fuzzer_without_inputs_misses_its_aim(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    assert [each.name for each in command.figures("mqtt", 1) if each.met is False] == ["mqtt_unforeseen"]


def test_a_fuzzer_that_read_something_meets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    counts = tmp_path / "mqtt" / "counts.json"
    python.write_text(f"#!/bin/sh\necho '{{\"accepted\": 7}}' > {counts}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    assert all(each.met is not False for each in command.figures("mqtt", 1))
