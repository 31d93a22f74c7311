"""Fleet provisioning: what a claim may do, what the template makes of it, and who is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import Contract
from eventplane.topics import CLAIM_CLIENT_PREFIX
from stacks.config import ENVIRONMENTS, EnvironmentSettingError, environment
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


def test_a_claim_may_ask_for_a_certificate_and_do_nothing_else(dev: Templates) -> None:
    (policy,) = [each for each in dev.of("AWS::IoT::Policy") if each.find("PolicyName").endswith("-claim")]
    allowed = {each["Action"]: targets(each) for each in policy.find("PolicyDocument")["Statement"]}
    assert allowed == {
        "iot:Connect": {f"client/{CLAIM_CLIENT_PREFIX}*"},
        "iot:Publish": {f"topic/{each}" for each in REQUESTS},
        "iot:Subscribe": {f"topicfilter/{each}" for each in ANSWERS},
        "iot:Receive": {f"topic/{each}" for each in ANSWERS},
    }


def test_the_template_makes_a_thing_with_the_devices_policy_and_an_active_certificate(dev: Templates) -> None:
    body = json.loads(template(dev).find("TemplateBody"))
    resources = {each["Type"]: each["Properties"] for each in body["Resources"].values()}
    assert resources == {
        "AWS::IoT::Thing": {"ThingName": {"Ref": "SerialNumber"}},
        "AWS::IoT::Certificate": {"CertificateId": {"Ref": "AWS::IoT::Certificate::Id"}, "Status": "Active"},
        "AWS::IoT::Policy": {"PolicyName": dev.outputs("routing")["DevicePolicy"]},
    }
    assert template(dev).find("TemplateName") == dev.outputs("routing")["ProvisioningTemplate"] == TEMPLATE


def test_its_role_registers_devices_and_is_lent_to_this_accounts_iot_only(dev: Templates) -> None:
    (role,) = [each for each in dev.of("AWS::IAM::Role") if each.id.startswith("FleetRole")]
    granted = {
        (action, target.rsplit(":", 1)[-1].strip('"]} '))
        for statement in statements(role)
        if "Resource" in statement
        for action in words(statement["Action"])
        for target in words(statement["Resource"])
    }
    assert granted == {
        ("iot:CreateThing", "thing/*"),
        ("iot:DescribeThing", "thing/*"),
        ("iot:UpdateThing", "thing/*"),
        ("iot:AttachThingPrincipal", "thing/*"),
        ("iot:AttachThingPrincipal", "cert/*"),
        ("iot:DescribeCertificate", "cert/*"),
        ("iot:UpdateCertificate", "cert/*"),
        ("iot:AttachPolicy", "cert/*"),
    }
    (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
    assert trust["Principal"] == {"Service": "iot.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_production_has_no_claim_until_somebody_checks_it(prod: Templates) -> None:
    assert prod.of("AWS::IoT::ProvisioningTemplate") == []
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("prod"), provisions_devices=True)
    assert caught.value.setting == "provisioning_hook"


def test_a_hook_is_asked_and_may_be_asked_by_this_template_only(
    monkeypatch: pytest.MonkeyPatch, contract: Contract
) -> None:
    asked = replace(environment("prod"), provisions_devices=True, provisioning_hook="who-is-it")
    monkeypatch.setitem(ENVIRONMENTS, "prod", asked)
    templates = Templates("prod", contract)
    hook = template(templates).find("PreProvisioningHook")
    assert json.dumps(hook["TargetArn"]).count(":function:who-is-it") == 1
    (permission,) = [each for each in templates.of("AWS::Lambda::Permission") if each.id.startswith("Fleet")]
    assert (permission.find("FunctionName"), permission.find("Principal")) == (
        "who-is-it",
        "iot.amazonaws.com",
    )
    assert ":provisioningtemplate/eventplane-prod-fleet" in json.dumps(permission.find("SourceArn"))
    assert permission.id in template(templates).attributes["DependsOn"]
