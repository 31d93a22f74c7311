"""New versions of functions come to their callers through an alias, step by step, the urgent router last."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import Contract
from stacks.config import environment
from stacks.settings import EnvironmentSettingError
from tests.infrastructure.templates import ALIAS, Resource, Templates, granted

CALLERS = {
    "AWS::Lambda::EventSourceMapping": ("FunctionName",),
    "AWS::Lambda::Permission": ("FunctionName",),
    "AWS::Lambda::EventInvokeConfig": ("Qualifier",),
    "AWS::Scheduler::Schedule": ("Target", "Arn"),
    "AWS::IoT::ProvisioningTemplate": ("PreProvisioningHook", "TargetArn"),
    "AWS::ApiGatewayV2::Integration": ("IntegrationUri",),
}


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_nobody_calls_a_function_but_by_its_alias(name: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue(name)
    functions = {each.id for each in templates.of("AWS::Lambda::Function")}
    aliased = {each.find("FunctionName")["Ref"] for each in templates.of(ALIAS)}
    assert aliased == functions
    callers = templates.of(*CALLERS)
    assert {each.type for each in callers} == set(CALLERS)
    for caller in callers:
        text = json.dumps(caller.find(*CALLERS[caller.type]))
        assert not any(f'"{each}"' in text for each in functions), str(caller)


def test_the_emulator_has_no_alias_as_tests_change_what_is_deployed(local: Templates) -> None:
    assert not local.of(ALIAS, "AWS::Lambda::Version", "AWS::CodeDeploy::DeploymentGroup")


def test_production_shifts_every_alias_and_rolls_back_by_its_own_alarm(prod: Templates) -> None:
    groups = {(each.stack, each.id): each for each in prod.of("AWS::CodeDeploy::DeploymentGroup")}
    alarms = {(each.stack, each.id): each for each in prod.of("AWS::CloudWatch::Alarm")}
    for alias in prod.of(ALIAS):
        name = prod.function_behind(alias, "FunctionName").find("FunctionName")
        update = alias.attributes["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        group = groups.pop((alias.stack, update["DeploymentGroupName"]["Ref"]))
        assert group.find("DeploymentConfigName") == "CodeDeployDefault.LambdaCanary10Percent10Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.find("AutoRollbackConfiguration", "Events")
        (used,) = group.find("AlarmConfiguration", "Alarms")
        alarm = alarms[alias.stack, used["Name"]["Ref"]]
        assert alarm.find("AlarmName") == f"{name}-rollout"
        assert errors_of(alarm) == {
            "FunctionName": name,
            "Resource": f"{name}:live",
            # Of the version that is deployed: the old one's failures do not stop its successor.
            "ExecutedVersion": alias.find("FunctionVersion"),
        }
    assert not groups


def errors_of(alarm: Resource) -> dict[str, Any]:
    """The dimensions of the errors that an alarm counts, alone or beside messages that were given back."""
    metrics = [each["MetricStat"]["Metric"] for each in alarm.find("Metrics") or [] if "MetricStat" in each]
    dimensions = next(
        (each["Dimensions"] for each in metrics if each["MetricName"] == "Errors"), alarm.find("Dimensions")
    )
    return {each["Name"]: each["Value"] for each in dimensions}


def test_a_batch_that_failed_message_by_message_rolls_back_too(prod: Templates) -> None:
    fed = {
        prod.function_behind(each, "FunctionName").find("FunctionName")
        for each in prod.of("AWS::Lambda::EventSourceMapping")
    }
    counting = {
        each.find("AlarmName").removesuffix("-rollout")
        for each in prod.of("AWS::CloudWatch::Alarm")
        if each.find("AlarmName").endswith("-rollout") and '"Retried"' in json.dumps(each.find("Metrics"))
    }
    assert counting == fed
    for each in prod.of("AWS::CloudWatch::Alarm"):
        name, _, what = each.find("AlarmName").rpartition("-")
        if what == "rollout" and name in fed:
            # Its own: what another router gives back says nothing of this one's new version.
            metrics = [of["MetricStat"]["Metric"] for of in each.find("Metrics") if "MetricStat" in of]
            (retried,) = [of for of in metrics if of["MetricName"] == "Retried"]
            assert retried["Dimensions"] == [{"Name": "service", "Value": name}]


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_the_urgent_router_changes_when_all_others_have(name: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue(name)
    (urgent,) = [each for each in templates.of(ALIAS) if each.id.startswith("DeviceUrgentRouter")]
    others = {each.id for each in templates.of(ALIAS) if each.stack == urgent.stack} - {urgent.id}
    assert "DeviceRouterFunctionLive69F4FA55" in others
    assert set(urgent.attributes["DependsOn"]) == others


def test_codedeploy_may_shift_the_functions_of_its_stack_and_no_others(prod: Templates) -> None:
    for role in prod.of("AWS::IAM::Role"):
        if role.id.startswith("Rollout"):
            assert not role.find("ManagedPolicyArns")
            may = granted(prod, role)
            functions = {
                each.find("FunctionName")
                for each in prod.of("AWS::Lambda::Function")
                if each.stack == role.stack
            }
            assert set(may) == {
                *("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"),
                "cloudwatch:DescribeAlarms",
            }
            reached = {each.split(":function:")[1].split('"')[0] for each in may["lambda:UpdateAlias"]}
            assert reached == functions | {f"{each}:*" for each in functions}


def test_two_urgent_routers_are_warm_in_production(prod: Templates, dev: Templates) -> None:
    path = ("ProvisionedConcurrencyConfig", "ProvisionedConcurrentExecutions")
    warm = {
        prod.function_behind(each, "FunctionName").find("FunctionName"): each.find(*path)
        for each in prod.of("AWS::Lambda::Version")
        if each.find(*path)
    }
    assert warm == {"eventplane-prod-router-device-urgent": 2}
    assert not any(each.find(*path) for each in dev.of("AWS::Lambda::Version"))
    # Lambda refuses it on an alias that is being shifted.
    assert not any(each.find("ProvisionedConcurrencyConfig") for each in prod.of(ALIAS))


def test_another_number_of_warm_executions_is_a_new_version_of_a_changed_function(
    prod: Templates, contract: Contract
) -> None:
    # An update of nothing but a version's provisioned concurrency fails, and rolls the stack back.
    one = environment("prod")
    size = replace(one.urgent_router, provisioned_concurrency=3)
    changed = Templates(replace(one, urgent_router=size), contract)
    for type in ("AWS::Lambda::Version", "AWS::Lambda::Function"):
        before, after = (
            {
                each.id: each.properties
                for each in templates.of(type)
                if each.id.startswith("DeviceUrgentRouter")
            }
            for templates in (prod, changed)
        )
        assert len(before) == len(after) == 1
        assert before != after
        if type == "AWS::Lambda::Version":
            assert before.keys() != after.keys()


def test_a_changed_function_is_a_new_version(dev: Templates, contract: Contract) -> None:
    other = environment("dev")
    changed = Templates(replace(other, router=replace(other.router, memory_mib=1_024)), contract)
    before, after = (
        {each.id for each in one.of("AWS::Lambda::Version") if each.id.startswith("CarersRouter")}
        for one in (dev, changed)
    )
    assert len(before) == len(after) == 1
    assert before != after


def test_a_roll_out_can_be_left_out_and_the_order_stays(contract: Contract) -> None:
    at_once = Templates(replace(environment("prod"), rollout_minutes=None), contract)
    assert not at_once.of("AWS::CodeDeploy::DeploymentGroup", "AWS::CodeDeploy::Application")
    aliases = at_once.of(ALIAS)
    assert not any("UpdatePolicy" in each.attributes for each in aliases)
    (urgent,) = [each for each in aliases if each.id.startswith("DeviceUrgentRouter")]
    assert urgent.attributes["DependsOn"]


@pytest.mark.parametrize("minutes", [0, 1, 7, 60])
def test_codedeploy_has_no_other_roll_outs(minutes: int) -> None:
    with pytest.raises(EnvironmentSettingError, match="rollout_minutes"):
        replace(environment("prod"), rollout_minutes=minutes)
    with pytest.raises(EnvironmentSettingError, match="no CodeDeploy"):
        replace(environment("local"), rollout_minutes=5)


def test_old_and_new_version_are_warm_at_once_within_what_is_reserved() -> None:
    size = environment("prod").urgent_router
    with pytest.raises(EnvironmentSettingError, match="provisioned_concurrency"):
        replace(size, provisioned_concurrency=26)
    with pytest.raises(EnvironmentSettingError, match="provisioned_concurrency"):
        replace(size, provisioned_concurrency=0)
