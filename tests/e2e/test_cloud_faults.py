"""A small run of the outages of AWS: nothing is lost and somebody is told; a loss fails the run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.outages import HELD, MOST_COPIES, UNSEEN
from lab.chaos.run import run
from lab.chaos.scenarios import CLOUD_FAULTS, Scenario
from lab.chaos.verdict import figures, summary

SEED = 1


def played(
    scenario: Scenario, folder: Path, kinds: tuple[str, ...], seconds: float, events: int
) -> tuple[Any, dict[str, Any]]:
    scenario = scenario.within(seconds, events)
    outcome = run(scenario, SEED, folder, kinds)
    return outcome, summary(outcome, {"scenario": scenario.name, "homes": scenario.homes, "seed": SEED})


@pytest.mark.source("P16")
def test_nothing_is_lost_when_services_of_aws_fail(tmp_path: Path) -> None:
    kinds = ("dynamodb-unavailable", "inbox-stalled")
    outcome, document = played(CLOUD_FAULTS, tmp_path / "run", kinds, seconds=60, events=420)
    # How long an alarm was held up, and what its queue's age did, depend on the machine: the whole scenario
    # judges them.
    assert set(document["wrong"]) <= {HELD, UNSEEN}, json.dumps(document, indent=2)
    rows = document["outages"]
    assert {row["fault"] for row in rows} == {*kinds, "dynamodb-unavailable+inbox-stalled"}
    assert all(row["urgent_during"]["number"] for row in rows)
    assert any(row["breached"] for row in rows)
    assert not document["alarms_not_evaluated"]
    found = {each.name: each.value for each in figures(outcome, document, loses=False)}
    assert (found["lost"], found["audit_lost"]) == (0, 0)
    assert 1 <= found["copies"] <= MOST_COPIES


@pytest.mark.source("P16")
def test_a_queue_that_swallows_events_fails_the_run(tmp_path: Path) -> None:
    # Carers would wait for the answers of homes that never get their messages.
    quiet = replace(CLOUD_FAULTS, tells=False)
    _, document = played(quiet, tmp_path / "run", ("sqs-swallowed",), seconds=30, events=300)
    assert document["verdict"] == "failed"
    # The receivers miss them; the ledger has them as delivered, so that the audit and the receivers disagree.
    assert {"lost", "audit disagrees"} <= set(document["wrong"])
    assert document["lost"] > 0
