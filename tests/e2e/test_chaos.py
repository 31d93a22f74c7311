"""The short scenario: pairs of faults, and both ends and the audit find nothing lost."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish

from contract import load_contract
from eventplane.batch import pack
from eventplane.envelope import Envelope, write_event
from eventplane.topics import basic_ingest_topic, urgent_rule
from lab.chaos import boots
from lab.chaos.clouds import StandIn
from lab.chaos.load import ALARMS, KEYWORD, MOTION, READINGS, SERVICES
from lab.chaos.run import RunResult, run
from lab.chaos.scenarios import SHORT
from lab.chaos.verdict import figures, summary
from lab.network import LOOPBACK
from lab.process import Supervisor

SEED = 9
BACKLOG = 500
"""Events that are published before an alarm."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(SHORT, SEED, tmp_path_factory.mktemp("chaos") / "run")


@pytest.fixture(scope="module")
def document(outcome: RunResult) -> dict[str, Any]:
    return summary(outcome, {"scenario": "short", "homes": 2, "seed": SEED})


@pytest.mark.source("P16")
def test_everything_arrives_and_the_audit_agrees(document: dict[str, Any]) -> None:
    assert document["verdict"] == "passed", json.dumps(document, indent=2)
    assert document["faults_injected"] > 10
    assert document["events_sent"] > 3_000


def test_the_figures_say_so(outcome: RunResult, document: dict[str, Any]) -> None:
    found = {each.name: each for each in figures(outcome, document, loses=False)}
    assert found["sent"].value == document["events_sent"]
    # On a full disk alarms take the place of other events; the devices have said of which.
    given_up = sum(len(each.lost) for each in outcome.verdicts)
    assert found["received"].value == found["expected"].value - given_up
    assert found["lost"].value == 0
    assert all(each.met for each in found.values() if each.aim is not None)
    assert any(name.startswith("recovery_") for name in found)


@pytest.mark.source("P16")
def test_a_stolen_arrival_fails_the_run(outcome: RunResult) -> None:
    verdicts = list(outcome.verdicts)
    (care,) = [each for each in verdicts if each.service == "care-analytics"]
    verdicts[verdicts.index(care)] = replace(care, delivered=care.delivered - 1, lost=(("/homes/a/s", "1"),))
    document = summary(replace(outcome, verdicts=verdicts), {"homes": 2})
    assert document["verdict"] == "failed"
    assert not document["audit_agrees"]


def test_no_boot_loses_an_acknowledged_alarm_without_a_report(tmp_path: Path) -> None:
    _, found = boots.run(20, SEED, tmp_path / "run")
    assert [each.name for each in found if each.met is False] == []


def test_an_alarm_does_not_wait_behind_the_backlog_of_other_events(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "run") as supervisor:
        cloud = StandIn(supervisor, load_contract())
        worker = cloud.faults()["router-stop"]
        worker.start()
        motions = [(basic_ingest_topic(cloud.rule, "home-1"), MOTION, number) for number in range(BACKLOG)]
        alarm = (basic_ingest_topic(urgent_rule(cloud.rule), "home-1"), KEYWORD, BACKLOG)
        messages = [
            {"topic": topic, "payload": pack([event(type, number)]), "qos": 1}
            for topic, type, number in [*motions, alarm]
        ]
        publish.multiple(messages, LOOPBACK, cloud._broker.plain_port)
        assert worker.heal
        worker.heal()
        assert cloud.settle()
        readings, alarms = cloud.arrivals(READINGS), cloud.arrivals(ALARMS)
        for each in (readings, alarms):
            each.refresh()
    (alarm_at,) = alarms.first.values()
    before = sum(at < alarm_at for at in readings.first.values())
    assert len(readings.first) == BACKLOG
    assert before < BACKLOG / 2


def event(type: str, number: int) -> Envelope:
    source = f"/homes/home-1/{SERVICES[type]}"
    data = {"keyword": "help"} if type == KEYWORD else {"state": "moved"}
    return write_event({"id": str(number), "source": source, "type": type, "subject": "/bedroom"}, data)
