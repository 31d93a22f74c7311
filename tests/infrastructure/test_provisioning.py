"""Fleet provisioning: what a claim may do, what the template makes of it, and who is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from tests.infrastructure.templates import Resource, Templates, statements, words

TEMPLATE = "eventplane-dev-fleet"
REQUESTS = {
    "$aws/certificates/create/json",
    "$aws/certificates/create-from-csr/json",
    f"$aws/provisioning-templates/{TEMPLATE}/provision/json",
}
ANSWERS = {f"{topic}/{word}" for topic in REQUESTS for word in ("accepted", "rejected")}


def template(templates: Templates) -> Resource:
    (found,) = templates.of("AWS::IoT::ProvisioningTemplate")
    return found


def targets(statement: dict[str, Any]) -> set[str]:
    """The resources of a statement without the part that names the account."""
    return {each["Fn::Join"][1][-1].split(":", 1)[1] for each in statement["Resource"]}


def policy_statements(dev: Templates, name: str) -> list[dict[str, Any]]:
    (policy,) = [each for each in dev.of("AWS::IoT::Policy") if each.find("PolicyName").endswith(f"-{name}")]
    statements: list[dict[str, Any]] = policy.find("PolicyDocument")["Statement"]
    return statements


@pytest.mark.parametrize(
    ("name", "prefix"), [("claim", CLAIM_CLIENT_PREFIX), ("renewal", RENEWAL_CLIENT_PREFIX)]
)
def test_claim_and_renewal_may_ask_for_a_certificate_and_do_nothing_else(
    dev: Templates, name: str, prefix: str
) -> None:
    allowed = {each["Action"]: targets(each) for each in policy_statements(dev, name)}
    assert allowed == {
        "iot:Connect": {f"client/{prefix}*"},
        "iot:Publish": {f"topic/{each}" for each in REQUESTS},
        "iot:Subscribe": {f"topicfilter/{each}" for each in ANSWERS},
        "iot:Receive": {f"topic/{each}" for each in ANSWERS},
    }


def test_the_template_makes_a_thing_with_the_devices_policies_and_an_active_certificate(
    dev: Templates,
) -> None:
    body = json.loads(template(dev).find("TemplateBody"))
    resources = [(each["Type"], each["Properties"]) for each in body["Resources"].values()]
    assert resources == [
        ("AWS::IoT::Thing", {"ThingName": {"Ref": "SerialNumber"}}),
        (
            "AWS::IoT::Certificate",
            {"CertificateId": {"Ref": "AWS::IoT::Certificate::Id"}, "Status": "Active"},
        ),
        ("AWS::IoT::Policy", {"PolicyName": dev.outputs("routing")["DevicePolicy"]}),
        ("AWS::IoT::Policy", {"PolicyName": "eventplane-dev-renewal"}),
    ]
    assert template(dev).find("TemplateName") == dev.outputs("fleet")["ProvisioningTemplate"] == TEMPLATE


def test_its_role_registers_devices_and_is_lent_to_this_accounts_iot_only(dev: Templates) -> None:
    assert granted(dev, "ProvisioningRole") == {
        ("iot:CreateThing", "thing/*"),
        ("iot:DescribeThing", "thing/*"),
        ("iot:UpdateThing", "thing/*"),
        ("iot:AttachThingPrincipal", "thing/*"),
        ("iot:AttachThingPrincipal", "cert/*"),
        ("iot:DescribeCertificate", "cert/*"),
        ("iot:UpdateCertificate", "cert/*"),
        ("iot:AttachPolicy", "cert/*"),
    }
    (role,) = [each for each in dev.of("AWS::IAM::Role") if each.id.startswith("ProvisioningRole")]
    (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
    assert trust["Principal"] == {"Service": "iot.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_the_hook_is_asked_in_every_environment_and_by_this_template_only(templates: Templates) -> None:
    (hook,) = [
        each for each in templates.of("AWS::Lambda::Function") if ".fleet.hook." in each.find("Handler")
    ]
    asked = template(templates).find("PreProvisioningHook")
    assert asked["PayloadVersion"] == "2020-04-01"
    assert templates.function_behind(template(templates), "PreProvisioningHook") == hook
    assert hook.find("Timeout") <= 5
    (permission,) = [each for each in templates.of("AWS::Lambda::Permission") if each.stack == "fleet"]
    assert templates.function_behind(permission, "FunctionName") == hook
    # It may call what is asked: the alias where there is one.
    assert ("Fn::Join" in permission.find("FunctionName")) == ("Ref" in asked["TargetArn"])
    assert permission.find("Principal") == "iot.amazonaws.com"
    assert permission.find("SourceAccount") == {"Ref": "AWS::AccountId"}
    name = template(templates).find("TemplateName")
    assert json.dumps(permission.find("SourceArn")).endswith(f':provisioningtemplate/{name}"]]}}')
    assert permission.id in template(templates).attributes["DependsOn"]


def granted(templates: Templates, role: str) -> set[tuple[str, str]]:
    (found,) = [each for each in templates.of("AWS::IAM::Role") if each.id.startswith(role)]
    return {
        (action, target.rsplit(":", 1)[-1].strip('"]} '))
        for statement in statements(found)
        if "Resource" in statement
        for action in words(statement["Action"])
        for target in words(statement["Resource"])
    }


REGISTRY = {(f"dynamodb:{action}", "table/eventplane-prod-fleet") for action in ("GetItem", "PutItem")}


def test_the_hook_may_use_the_registry_and_nothing_else(prod: Templates) -> None:
    assert granted(prod, "HookRole") == REGISTRY


def test_the_keeper_may_retire_certificates_and_nothing_else(prod: Templates) -> None:
    assert granted(prod, "KeeperRole") == REGISTRY | {
        ("sqs:SendMessage", "eventplane-prod-connections"),
        ("iot:UpdateCertificate", "cert/*"),
        ("iot:DetachThingPrincipal", "thing/*"),
        ("iot:DetachThingPrincipal", "cert/*"),
    }


def test_a_replaced_certificate_stays_valid_for_a_while(prod: Templates) -> None:
    (keeper,) = [each for each in prod.of("AWS::Lambda::Function") if each.id.startswith("Keeper")]
    assert keeper.find("Environment", "Variables", "EVENTPLANE_CERTIFICATE_GRACE_S") == "900"


def test_connections_come_to_the_keeper(prod: Templates) -> None:
    (rule,) = [each for each in prod.of("AWS::IoT::TopicRule") if each.stack == "fleet"]
    payload = rule.find("TopicRulePayload")
    assert payload["AwsIotSqlVersion"] == "2016-03-23"
    assert payload["Sql"] == (
        "SELECT clientId AS thing, principalIdentifier AS certificate FROM '$aws/events/presence/connected/+'"
    )
    actions = (*payload["Actions"], payload["ErrorAction"])
    targets = [json.dumps(each["Sqs"]["QueueUrl"]) for each in actions]
    assert [each.count("connections-dlq") for each in targets] == [0, 1]


def test_a_quarantine_denies_everything(dev: Templates) -> None:
    assert policy_statements(dev, "quarantine") == [{"Effect": "Deny", "Action": "iot:*", "Resource": "*"}]


def test_the_fleet_is_written_into_the_archive_several_times_a_day(templates: Templates) -> None:
    (schedule,) = [each for each in templates.of("AWS::Scheduler::Schedule") if each.stack == "fleet"]
    called = templates.function_behind(schedule, "Target", "Arn")
    assert called.find("Handler") == "lambdas.fleet.snapshot.handle"
    assert schedule.find("ScheduleExpression") == "rate(360 minutes)"
    assert templates.outputs("fleet")["FleetSnapshotFunction"] == called.find("FunctionName")


def test_only_a_run_on_one_machine_has_it_written_by_hand(local: Templates, dev: Templates) -> None:
    states = [
        each.find("State")
        for templates in (local, dev)
        for each in templates.of("AWS::Scheduler::Schedule")
        if each.stack == "fleet"
    ]
    assert states == ["DISABLED", "ENABLED"]


def test_the_snapshot_may_read_the_registry_and_write_its_folder_and_nothing_else(prod: Templates) -> None:
    may = {(action, target.rpartition('"')[2]) for action, target in granted(prod, "SnapshotRole")}
    assert may == {("dynamodb:Scan", "table/eventplane-prod-fleet"), ("s3:PutObject", "/fleet/*")}
