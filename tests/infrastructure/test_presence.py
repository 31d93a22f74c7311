"""The presence monitor: who may do what, what starts it, what its table is like."""

from __future__ import annotations

import json

from eventplane.presence import BUCKETS
from stacks.config import environment
from tests.infrastructure.templates import Resource, Templates, statements, words


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


def test_those_that_take_down_may_write_the_table_and_nothing_else(dev: Templates) -> None:
    for name, queue in (("connections", "dev-presence"), ("heartbeats", "dev-presence-monitor-inbox")):
        may = granted(dev, role_of(dev, name))
        assert {action for action in may if action.startswith("dynamodb:")} == {
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
        }
        assert may["dynamodb:PutItem"].endswith(':table/eventplane-dev-presence"]]}')
        assert "sqs:SendMessage" not in may
        assert may["sqs:DeleteMessage"].endswith(f':eventplane-{queue}"]]}}')


def test_the_sweeper_may_write_the_outbox_and_the_table_and_nothing_else(dev: Templates) -> None:
    may = granted(dev, role_of(dev, "sweeper"))
    assert {action for action in may if not action.startswith("xray:")} == {
        "dynamodb:BatchGetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "sqs:SendMessage",
    }
    assert may["sqs:SendMessage"].endswith(':eventplane-dev-presence-monitor-outbox"]]}')
    assert may["dynamodb:Query"].endswith(':table/eventplane-dev-presence/index/due"]]}')


def test_every_bucket_is_swept_once_a_minute_by_one_schedule(templates: Templates) -> None:
    schedules = [
        each for each in templates.of("AWS::Scheduler::Schedule") if "-presence-sweep-" in each.find("Name")
    ]
    swept = [
        bucket for schedule in schedules for bucket in json.loads(schedule.find("Target", "Input"))["buckets"]
    ]
    assert sorted(swept) == list(range(BUCKETS))
    assert {each.find("ScheduleExpression") for each in schedules} == {"rate(1 minute)"}
    (role,) = {each.find("Target", "RoleArn")["Fn::GetAtt"][0] for each in schedules}
    may = granted(templates, next(each for each in templates.of("AWS::IAM::Role") if each.id == role))
    assert set(may) == {"lambda:InvokeFunction"}


def test_a_call_of_a_schedule_that_fails_is_not_repeated(templates: Templates) -> None:
    called = {
        each.find("Target", "Arn")["Fn::GetAtt"][0] for each in templates.of("AWS::Scheduler::Schedule")
    }
    configured = {
        each.find("FunctionName")["Ref"]: (
            each.find("MaximumRetryAttempts"),
            each.find("MaximumEventAgeInSeconds"),
        )
        for each in templates.of("AWS::Lambda::EventInvokeConfig")
    }
    assert configured == dict.fromkeys(called, (0, 60))
    targets = [each.find("Target") for each in templates.of("AWS::Scheduler::Schedule")]
    assert {each["RetryPolicy"]["MaximumRetryAttempts"] for each in targets} == {0}


def test_nobody_but_a_run_on_one_machine_has_to_sweep_by_hand(templates: Templates, local: Templates) -> None:
    states = {each.find("State") for each in templates.of("AWS::Scheduler::Schedule")}
    assert states == {"DISABLED" if templates is local else "ENABLED"}


def test_a_sweep_ends_before_the_next_begins(templates: Templates) -> None:
    (sweeper,) = [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("FunctionName").endswith("-presence-sweeper")
    ]
    assert sweeper.find("Timeout") < 60


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
    assert limits == {name: str(getattr(settings, name)) for name in limits}
