"""The presence monitor: what starts it, and by which limits it judges."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from eventplane.fleet import BUCKETS
from stacks.config import environment
from tests.infrastructure.templates import Resource, Templates, granted

pytestmark = pytest.mark.source("P9")


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
    timers = templates.function("presence-timers")
    return [
        each
        for each in templates.of("AWS::Lambda::EventSourceMapping")
        if templates.function_behind(each, "FunctionName") == timers
    ]


def test_a_run_of_the_reconciler_ends_before_the_next_begins(templates: Templates) -> None:
    assert templates.function("presence-reconciler").find("Timeout") < 60


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
