"""The downlink: who may do what, what starts it, what its table is like."""

from __future__ import annotations

import json

import pytest

from contract import load_contract
from eventplane.contract import compile_contract
from eventplane.downlink.table import PENDING_INDEX
from eventplane.fleet import BUCKETS
from tests.infrastructure.templates import Resource, Templates
from tests.infrastructure.test_presence import granted

COMMON = {
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:DeleteItem",
    "dynamodb:Query",
    "dynamodb:BatchGetItem",
    "iot:Publish",
    "sqs:SendMessage",
}


def function(templates: Templates, source: str) -> Resource:
    return next(
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("FunctionName").endswith(f"-downlink-{source}")
    )


def may(templates: Templates, source: str) -> set[str]:
    id = function(templates, source).find("Role")["Fn::GetAtt"][0]
    role = next(each for each in templates.of("AWS::IAM::Role") if each.id == id)
    reading = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"}
    reading |= {"sqs:ChangeMessageVisibility"}
    return granted(templates, role).keys() - reading


@pytest.mark.parametrize("source", ["answers", "reconciler"])
def test_every_function_may_change_items_and_publish_to_inboxes(dev: Templates, source: str) -> None:
    assert may(dev, source) == COMMON


def test_only_who_finds_the_devices_of_an_event_or_of_a_reset_may_look_through_the_fleet(
    dev: Templates,
) -> None:
    assert may(dev, "desired") == may(dev, "due") == COMMON | {"dynamodb:Scan"}


@pytest.mark.parametrize("source", ["desired", "answers", "due", "reconciler"])
def test_every_source_has_its_function(templates: Templates, source: str) -> None:
    assert function(templates, source).find("Handler") == f"lambdas.downlink.{source}.handle"


@pytest.mark.source("K6")
def test_every_bucket_is_reconciled_once_a_minute(templates: Templates, local: Templates) -> None:
    schedules = [
        each for each in templates.of("AWS::Scheduler::Schedule") if "-downlink-" in each.find("Name")
    ]
    buckets = [
        bucket for schedule in schedules for bucket in json.loads(schedule.find("Target", "Input"))["buckets"]
    ]
    assert sorted(buckets) == list(range(BUCKETS))
    assert {each.find("ScheduleExpression") for each in schedules} == {"rate(1 minute)"}
    assert {each.find("State") for each in schedules} == {"DISABLED" if templates is local else "ENABLED"}
    assert function(templates, "reconciler").find("Timeout") < 60


def test_what_is_idle_costs_nothing_in_the_indexes_and_a_deleted_table_comes_back(
    templates: Templates,
) -> None:
    (table,) = (each for each in templates.of("AWS::DynamoDB::Table") if each.stack == "downlink")
    (work,) = table.find("GlobalSecondaryIndexes")
    (pending,) = table.find("LocalSecondaryIndexes")
    assert [each["AttributeName"] for each in work["KeySchema"]] == ["work", "due_at_ms"]
    assert [each["AttributeName"] for each in pending["KeySchema"]] == ["thing", "due_at_ms"]
    assert {str(each["Projection"]) for each in (work, pending)} == {"{'ProjectionType': 'KEYS_ONLY'}"}
    assert pending["IndexName"] == PENDING_INDEX
    assert table.find("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}


def test_a_device_that_subscribes_wakes_the_downlink(templates: Templates) -> None:
    (rule,) = [
        each for each in templates.of("AWS::IoT::TopicRule") if each.find("RuleName").endswith("_downlink")
    ]
    payload = rule.find("TopicRulePayload")
    assert payload["Sql"] == "SELECT clientId AS subscribed FROM '$aws/events/subscriptions/subscribed/+'"
    actions = [payload["Actions"][0]["Sqs"], payload["ErrorAction"]["Sqs"]]
    names = [json.dumps(each["QueueUrl"]).rsplit("/", 1)[-1].strip('"]} ') for each in actions]
    assert [name.split("-", 2)[-1] for name in names] == ["downlink-work", "downlink-work-dlq"]


def test_a_plane_without_a_downlink_has_none_of_it(dev: Templates) -> None:
    document = json.loads(load_contract().canonical)
    del document["participants"]["downlink"]
    for route in ("down-to-devices", "answers-to-downlink"):
        del document["routes"][route]
    without = Templates("dev", compile_contract(document, "test"))
    names = json.dumps([without.documents["routing"], without.documents["messaging"]])
    assert "device-inbox" not in names
    assert "downlink" not in names
