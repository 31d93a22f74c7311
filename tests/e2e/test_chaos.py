"""The short scenario: pairs of faults, and both ends and the audit find nothing lost."""

import json
from pathlib import Path

import pytest

from local.chaos import boots
from local.chaos.run import run
from local.chaos.scenarios import SHORT
from local.chaos.verdict import summary

SEED = 9


@pytest.mark.source("P16")
def test_everything_arrives_and_the_audit_agrees(tmp_path: Path) -> None:
    document = summary(run(SHORT, SEED, tmp_path / "run"), {"scenario": "short", "homes": 2, "seed": SEED})
    assert document["verdict"] == "passed", json.dumps(document, indent=2)
    assert document["faults_injected"] > 10
    assert document["events_sent"] > 3_000


def test_no_boot_loses_an_acknowledged_alarm_without_a_report(tmp_path: Path) -> None:
    _, found = boots.run(20, SEED, tmp_path / "run")
    assert [each.name for each in found if each.met is False] == []
