"""Fleet provisioning: what a claim may do, what the template makes of it, and who is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from tests.infrastructure.templates import Resource, Templates, granted, last_part

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
    (role,) = [each for each in dev.of("AWS::IAM::Role") if each.id.startswith("ProvisioningRole")]
    may: dict[str, set[str]] = {}
    for action, targets in granted(dev, role).items():
        for each in targets:
            may.setdefault(last_part(each), set()).add(action.removeprefix("iot:"))
    assert may == {
        "thing/*": {"CreateThing", "DescribeThing", "UpdateThing", "AttachThingPrincipal"},
        "cert/*": {"AttachThingPrincipal", "DescribeCertificate", "UpdateCertificate", "AttachPolicy"},
    }
    (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
    assert trust["Principal"] == {"Service": "iot.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_the_hook_is_asked_in_every_environment_and_by_this_template_only(templates: Templates) -> None:
    hook = templates.function("provisioning-hook")
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


def test_a_replaced_certificate_stays_valid_for_a_while(prod: Templates) -> None:
    keeper = prod.function("certificate-keeper")
    assert keeper.find("Environment", "Variables", "EVENTPLANE_CERTIFICATE_GRACE_S") == "900"


def test_a_quarantine_denies_everything(dev: Templates) -> None:
    assert policy_statements(dev, "quarantine") == [{"Effect": "Deny", "Action": "iot:*", "Resource": "*"}]


def test_the_fleet_is_written_into_the_archive_several_times_a_day(templates: Templates) -> None:
    (schedule,) = [each for each in templates.of("AWS::Scheduler::Schedule") if each.stack == "fleet"]
    called = templates.function_behind(schedule, "Target", "Arn")
    assert called.find("Handler") == "lambdas.fleet.snapshot.handle"
    assert schedule.find("ScheduleExpression") == "rate(360 minutes)"
    assert templates.outputs("fleet")["FleetSnapshotFunction"] == called.find("FunctionName")
