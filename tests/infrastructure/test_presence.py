"""The presence monitor: who may do what, what starts it, what its table is like."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from eventplane.fleet import BUCKETS
from stacks.config import environment
from tests.infrastructure.templates import Resource, Templates, statements, words

pytestmark = pytest.mark.source("P9")

READ_QUEUE = {
    "sqs:ReceiveMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}


def granted(templates: Templates, role: Resource) -> dict[str, str]:
    """What a role may do, and on what; without its log."""
    attached = [each for each in templates.of("AWS::IAM::Policy") if {"Ref": role.id} in each.find("Roles")]
    return {
        action: json.dumps(statement["Resource"])
        for holder in (role, *attached)
        for statement in statements(holder)
        if "Resource" in statement
        for action in words(statement["Action"])
        if not action.startswith("logs:")
    }


def role_of(templates: Templates, name: str) -> Resource:
    (function,) = [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("FunctionName").endswith(f"-presence-{name}")
    ]
    id = function.find("Role")["Fn::GetAtt"][0]
    return next(each for each in templates.of("AWS::IAM::Role") if each.id == id)


def test_those_that_take_down_may_write_the_table_arm_timers_and_nothing_else(dev: Templates) -> None:
    for name, queue in (("connections", "dev-presence"), ("heartbeats", "dev-presence-monitor-inbox")):
        may = granted(dev, role_of(dev, name))
        assert {action for action in may if action.startswith("dynamodb:")} == {
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
        }
        assert may["dynamodb:PutItem"].endswith(':table/eventplane-dev-presence"]]}')
        assert may["sqs:SendMessage"].endswith(':eventplane-dev-presence-timers"]]}')
        assert may["sqs:DeleteMessage"].endswith(f':eventplane-{queue}"]]}}')


def test_those_that_judge_may_write_the_outbox_the_table_arm_timers_and_nothing_else(dev: Templates) -> None:
    for name, more in (("timers", READ_QUEUE), ("reconciler", {"dynamodb:Query"})):
        may = granted(dev, role_of(dev, name))
        assert set(may) == {
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
            "sqs:SendMessage",
            *more,
        }
        for queue in ("presence-timers", "presence-monitor-outbox"):
            assert f':eventplane-dev-{queue}"]]}}' in may["sqs:SendMessage"]
    assert may["dynamodb:Query"].endswith(':table/eventplane-dev-presence/index/due"]]}')


def test_every_bucket_is_reconciled_once_a_minute_by_one_schedule(templates: Templates) -> None:
    schedules = [
        each
        for each in templates.of("AWS::Scheduler::Schedule")
        if "-presence-reconcile-" in each.find("Name")
    ]
    (given,) = (json.loads(each.find("Target", "Input")) for each in schedules)
    assert given == {"buckets": list(range(BUCKETS)), "overdue_ms": 60_000}
    assert {each.find("ScheduleExpression") for each in schedules} == {"rate(1 minute)"}
    (role,) = {each.find("Target", "RoleArn")["Fn::GetAtt"][0] for each in schedules}
    may = granted(templates, next(each for each in templates.of("AWS::IAM::Role") if each.id == role))
    assert set(may) == {"lambda:InvokeFunction"}


def test_a_call_of_a_schedule_that_fails_is_not_repeated(templates: Templates) -> None:
    called = {
        str(templates.function_behind(each, "Target", "Arn"))
        for each in templates.of("AWS::Scheduler::Schedule")
    }
    configured = {
        str(templates.function_behind(each, "FunctionName")): (
            each.find("MaximumRetryAttempts"),
            each.find("MaximumEventAgeInSeconds"),
        )
        for each in templates.of("AWS::Lambda::EventInvokeConfig")
    }
    assert configured == dict.fromkeys(called, (0, 60))
    targets = [each.find("Target") for each in templates.of("AWS::Scheduler::Schedule")]
    assert {each["RetryPolicy"]["MaximumRetryAttempts"] for each in targets} == {0}


def test_nobody_but_a_run_on_one_machine_has_to_start_timers_by_hand(
    templates: Templates, local: Templates
) -> None:
    states = {each.find("State") for each in templates.of("AWS::Scheduler::Schedule")}
    assert states == {"DISABLED" if templates is local else "ENABLED"}
    (mapping,) = timers_mapping(templates)
    assert mapping.find("Enabled") is (templates is not local)


def test_nothing_between_a_deadline_and_its_judge_waits_for_company(templates: Templates) -> None:
    (mapping,) = timers_mapping(templates)
    assert mapping.properties.get("MaximumBatchingWindowInSeconds", 0) == 0
    assert mapping.find("FunctionResponseTypes") == ["ReportBatchItemFailures"]


def timers_mapping(templates: Templates) -> list[Resource]:
    """What feeds the function that judges devices."""
    (timers,) = [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("FunctionName").endswith("-presence-timers")
    ]
    return [
        each
        for each in templates.of("AWS::Lambda::EventSourceMapping")
        if templates.function_behind(each, "FunctionName") == timers
    ]


def test_a_run_of_the_reconciler_ends_before_the_next_begins(templates: Templates) -> None:
    (reconciler,) = [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("FunctionName").endswith("-presence-reconciler")
    ]
    assert reconciler.find("Timeout") < 60


def test_the_index_is_of_keys_only_and_a_deleted_table_can_be_restored(templates: Templates) -> None:
    (table,) = (each for each in templates.of("AWS::DynamoDB::Table") if each.stack == "presence")
    (index,) = table.find("GlobalSecondaryIndexes")
    assert [each["AttributeName"] for each in index["KeySchema"]] == ["bucket", "due_ms"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert table.find("BillingMode") == "PAY_PER_REQUEST"
    assert table.find("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}


def test_lifecycle_messages_come_by_a_pinned_rule_with_an_error_action(templates: Templates) -> None:
    (rule,) = [
        each for each in templates.of("AWS::IoT::TopicRule") if each.find("RuleName").endswith("_presence")
    ]
    payload = rule.find("TopicRulePayload")
    assert payload["Sql"] == "SELECT * FROM '$aws/events/presence/+/#'"
    assert payload["AwsIotSqlVersion"] == "2016-03-23"
    actions = [payload["Actions"][0]["Sqs"], payload["ErrorAction"]["Sqs"]]
    names = [json.dumps(each["QueueUrl"]).rsplit("/", 1)[-1].strip('"]} ') for each in actions]
    assert [name.split("-", 2)[-1] for name in names] == ["presence", "presence-dlq"]
    assert len({json.dumps(each["RoleArn"]) for each in actions}) == 2


def test_the_functions_are_told_the_limits_of_their_environment(prod: Templates) -> None:
    told = {
        json.dumps(each.find("Environment", "Variables", "EVENTPLANE_PRESENCE_LIMITS"))
        for each in prod.of("AWS::Lambda::Function")
        if each.find("FunctionName").startswith("eventplane-prod-presence-")
    }
    (limits,) = (json.loads(json.loads(each)) for each in told)
    settings = environment("prod").presence
    assert limits.pop("quota") == asdict(settings.quota)
    assert limits == {name: getattr(settings, name) for name in limits}
