"""Costs: told apart by tags, and told of when they grow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import Contract, ParticipantKind
from stacks.config import environment
from stacks.settings import CostSettings, EnvironmentSettingError
from tests.infrastructure.templates import Resource, Templates

COSTS = CostSettings(subscribers=("owner@example.org",), monthly_usd=120, anomaly_usd=25)


def tags(resource: Resource) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in resource.find("Tags") or []}


def test_queues_and_functions_of_a_participant_carry_its_name(
    templates: Templates, contract: Contract
) -> None:
    found: dict[str, set[str]] = {}
    for each in templates.of("AWS::SQS::Queue", "AWS::Lambda::Function"):
        if name := tags(each).get("participant"):
            found.setdefault(name, set()).add(each.find("QueueName") or each.find("FunctionName"))
    for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        ends = {each.split(f"-{service.name}", 1)[-1] for each in found[service.name]}
        assert {"-inbox", "-inbox-dlq", "-outbox", "-outbox-dlq"} <= {
            each.removesuffix(".fifo") for each in ends
        }
        assert any(each.endswith(f"-router-{service.name}") for each in found[service.name])
    routers = {each.split("-", 2)[2] for each in found["device"] if "-router-" in each}
    assert routers == {"router-device", "router-device-urgent"}


def test_everything_that_can_be_tagged_carries_the_plane(dev: Templates) -> None:
    tagged = [each for each in dev.of() if each.find("Tags")]
    assert tagged
    for each in dev.of("AWS::SQS::Queue", "AWS::Lambda::Function", "AWS::S3::Bucket", "AWS::DynamoDB::Table"):
        assert tags(each)["plane"] == "eventplane-dev", str(each)


@pytest.fixture(scope="module")
def costly(contract: Contract) -> Templates:
    return Templates(replace(environment("dev"), costs=COSTS), contract)


def test_the_budget_counts_the_plane_and_tells_before_it_is_spent(costly: Templates) -> None:
    (budget,) = costly.of("AWS::Budgets::Budget")
    assert budget.find("Budget", "BudgetLimit") == {"Amount": 120, "Unit": "USD"}
    assert budget.find("Budget", "CostFilters") == {"TagKeyValue": ["user:plane$eventplane-dev"]}
    told = [
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"])
        for each in budget.find("NotificationsWithSubscribers")
    ]
    assert told == [("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)]
    assert "owner@example.org" in json.dumps(budget.find("NotificationsWithSubscribers"))


def test_an_anomaly_of_the_plane_is_told(costly: Templates) -> None:
    (monitor,) = costly.of("AWS::CE::AnomalyMonitor")
    specification = json.loads(monitor.find("MonitorSpecification"))
    assert specification["Tags"] == {"Key": "plane", "Values": ["eventplane-dev"], "MatchOptions": ["EQUALS"]}
    (subscription,) = costly.of("AWS::CE::AnomalySubscription")
    threshold = json.loads(subscription.find("ThresholdExpression"))["Dimensions"]
    assert (threshold["Key"], threshold["Values"]) == ("ANOMALY_TOTAL_IMPACT_ABSOLUTE", ["25"])
    assert subscription.find("Subscribers") == [{"Address": "owner@example.org", "Type": "EMAIL"}]


def test_without_the_setting_there_is_no_stack_for_it(templates: Templates) -> None:
    assert "costs" not in templates.documents


@pytest.mark.parametrize(
    "wrong",
    [
        {"subscribers": ()},
        {"subscribers": ("nobody",)},
        {"subscribers": tuple(f"{each}@example.org" for each in range(11))},
        {"monthly_usd": 0},
        {"anomaly_usd": -1},
    ],
)
def test_a_setting_that_aws_would_refuse_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentSettingError, match=f"costs.{next(iter(wrong))}"):
        replace(COSTS, **wrong)


def test_an_emulated_cloud_costs_nothing() -> None:
    with pytest.raises(EnvironmentSettingError, match="costs"):
        replace(environment("local"), costs=COSTS)
