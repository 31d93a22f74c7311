"""New versions of functions come to their callers through an alias, step by step, the urgent router last."""

import json

from tests.infrastructure.templates import ALIAS, FUNCTION, MAPPING, SCHEDULE, Templates, granted
from tests.infrastructure.test_monitoring import ALARM, dimensions, single

VERSION = "AWS::Lambda::Version"
CALLED_AT_ONCE = {
    SCHEDULE: ("Target", "Arn"),
    "AWS::Lambda::Permission": ("FunctionName",),
    "AWS::Lambda::EventInvokeConfig": ("FunctionName",),
    "AWS::IoT::ProvisioningTemplate": ("PreProvisioningHook", "TargetArn"),
    "AWS::ApiGatewayV2::Integration": ("IntegrationUri",),
}


def test_queues_call_the_alias(released: Templates, local: Templates) -> None:
    functions = {each.id for each in released.of(FUNCTION)}
    fed = {released.function_behind(each, "FunctionName").id for each in released.of(MAPPING)}
    assert {each.find("FunctionName")["Ref"] for each in released.of(ALIAS)} == fed
    for mapping in released.of(MAPPING):
        assert not any(f'"{each}"' in json.dumps(mapping.find("FunctionName")) for each in functions)
    callers = released.of(*CALLED_AT_ONCE)
    assert {each.type for each in callers} == set(CALLED_AT_ONCE)
    for caller in callers:
        text = json.dumps(caller.find(*CALLED_AT_ONCE[caller.type]))
        assert any(f'"{each}"' in text for each in functions - fed), str(caller)
    # Tests of the emulated cloud change what is deployed.
    assert not local.of(ALIAS, VERSION, "AWS::CodeDeploy::DeploymentGroup")


def test_production_shifts_every_alias(prod: Templates) -> None:
    groups = {(each.stack, each.id): each for each in prod.of("AWS::CodeDeploy::DeploymentGroup")}
    alarms = {(each.stack, each.id): each for each in prod.of(ALARM)}
    for alias in prod.of(ALIAS):
        function = prod.function_behind(alias, "FunctionName")
        name = function.find("FunctionName")
        update = alias.attributes["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        group = groups.pop((alias.stack, update["DeploymentGroupName"]["Ref"]))
        assert group.find("DeploymentConfigName") == "CodeDeployDefault.LambdaCanary10Percent10Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.find("AutoRollbackConfiguration", "Events")
        (used,) = group.find("AlarmConfiguration", "Alarms")
        alarm = alarms[alias.stack, used["Name"]["Ref"]]
        assert alarm.find("AlarmName") == f"{name}-rollout"
        metrics = {each.find("MetricName"): dimensions(each) for each in single(alarm)}
        # Of the version that is deployed: the old one's failures do not stop its successor.
        version = alias.find("FunctionVersion")
        errors = {"FunctionName": name, "Resource": f"{name}:live", "ExecutedVersion": version}
        assert metrics.pop("Errors") == errors
        # A batch that failed message by message rolls back too; what another router retries does not.
        assert metrics == {"Retried": {"service": name}}
    assert not groups


def test_the_urgent_router_changes_when_all_others_have(released: Templates) -> None:
    urgent = released.one(ALIAS, "DeviceUrgentRouter")
    others = {each.id for each in released.of(ALIAS, stack=urgent.stack)} - {urgent.id}
    assert "DeviceRouterFunctionLive69F4FA55" in others
    assert set(urgent.attributes["DependsOn"]) == others


def test_codedeploy_shifts_only_its_stack(prod: Templates) -> None:
    roles = [each for each in prod.of("AWS::IAM::Role") if each.id.startswith("Rollout")]
    assert roles
    for role in roles:
        may = granted(prod, role)
        aliases = prod.of(ALIAS, stack=role.stack)
        functions = {prod.function_behind(each, "FunctionName").find("FunctionName") for each in aliases}
        assert set(may) == {
            *("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"),
            "cloudwatch:DescribeAlarms",
        }
        reached = {each.split(":function:")[1].split('"')[0] for each in may["lambda:UpdateAlias"]}
        assert reached == functions | {f"{each}:*" for each in functions}


def test_warm_executions_make_a_version(prod: Templates, guarded: Templates) -> None:
    # An update of nothing but a version's provisioned concurrency fails, and rolls the stack back.
    for type in (VERSION, FUNCTION):
        before, after = (each.one(type, "DeviceUrgentRouter") for each in (prod, guarded))
        assert before.properties != after.properties
        assert (before.id != after.id) is (type == VERSION)
    # Lambda refuses it on an alias that is being shifted.
    assert not any(each.find("ProvisionedConcurrencyConfig") for each in prod.of(ALIAS))


def test_a_changed_function_is_a_new_version(dev: Templates, full: Templates) -> None:
    before, after = (each.one(VERSION, "ServicesRouter") for each in (dev, full))
    assert before.id != after.id


def test_a_roll_out_can_be_left_out_and_the_order_stays(guarded: Templates) -> None:
    assert not guarded.of("AWS::CodeDeploy::DeploymentGroup", "AWS::CodeDeploy::Application")
    assert not any("UpdatePolicy" in each.attributes for each in guarded.of(ALIAS))
    assert guarded.one(ALIAS, "DeviceUrgentRouter").attributes["DependsOn"]
