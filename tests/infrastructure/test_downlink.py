"""The downlink: what starts it, and what tells devices which events the cloud wants."""

from __future__ import annotations

import json
from functools import cache

import pytest

from contract import load_contract
from eventplane.contract import compile_contract
from eventplane.fleet import BUCKETS
from tests.infrastructure.templates import Templates


@pytest.mark.parametrize("source", ["desired", "answers", "due", "reconciler"])
def test_every_source_has_its_function(templates: Templates, source: str) -> None:
    assert templates.function(f"downlink-{source}").find("Handler") == f"lambdas.downlink.{source}.handle"


@pytest.mark.source("K6")
def test_every_bucket_is_reconciled_once_a_minute(templates: Templates) -> None:
    schedules = [
        each for each in templates.of("AWS::Scheduler::Schedule") if "-downlink-" in each.find("Name")
    ]
    buckets = [
        bucket for schedule in schedules for bucket in json.loads(schedule.find("Target", "Input"))["buckets"]
    ]
    assert sorted(buckets) == list(range(BUCKETS))
    assert {each.find("ScheduleExpression") for each in schedules} == {"rate(1 minute)"}
    assert templates.function("downlink-reconciler").find("Timeout") < 60


def test_a_plane_without_a_downlink_has_none_of_it(dev: Templates) -> None:
    document = json.loads(load_contract().canonical)
    del document["participants"]["downlink"]
    for route in ("down-to-devices", "answers-to-downlink"):
        del document["routes"][route]
    without = Templates("dev", compile_contract(document, "test"))
    names = json.dumps([without.documents["routing"], without.documents["messaging"]])
    assert "device-inbox" not in names
    assert "downlink" not in names


INTEREST = "uplink-interest"


@cache
def _asking(environment: str) -> Templates:
    """The templates of a contract by which devices send up what the cloud wants."""
    document = json.loads(load_contract().canonical)
    document["participants"]["device"].setdefault("outbox", {})["forward"] = "wanted"
    return Templates(environment, compile_contract(document, "test"))


def test_uplink_interest_reads_what_is_in_force_and_writes_its_memory_and_the_outbox_of_operations() -> None:
    dev = _asking("dev")
    assert dev.may(dev.function(INTEREST)) == {
        "dynamodb:GetItem": {"table/contracts", "table/desired"},
        "dynamodb:PutItem": {"table/desired"},
        "dynamodb:Scan": {"table/subscriptions"},
        "sqs:SendMessage": {"operations-outbox"},
    }


@pytest.mark.parametrize(("name", "state"), [("local", "DISABLED"), ("dev", "ENABLED")])
def test_uplink_interest_looks_once_a_minute_and_is_done_before_the_next(name: str, state: str) -> None:
    templates = _asking(name)
    (schedule,) = (each for each in templates.of("AWS::Scheduler::Schedule") if INTEREST in each.find("Name"))
    assert schedule.find("ScheduleExpression") == "rate(1 minute)"
    assert schedule.find("State") == state
    assert templates.function_behind(schedule, "Target", "Arn") == templates.function(INTEREST)
    assert templates.function(INTEREST).find("Timeout") < 60


def test_where_devices_send_everything_there_is_no_uplink_interest(dev: Templates, local: Templates) -> None:
    assert INTEREST not in json.dumps([dev.documents, local.documents])
