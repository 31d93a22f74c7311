"""AWS's rules for templates: what breaks one is refused before anything is deployed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.plane_size import refusal, with_services
from stacks.rules import RULES, RegionError, Template, TemplateRuleError, check, templates
from tests.infrastructure.templates import Templates

POLICY = {"Version": "2012-10-17", "Statement": []}


def policy(characters: int, **statement: Any) -> dict[str, Any]:
    """A policy document that has so many characters as AWS counts them."""
    document = {**POLICY, "Statement": [{"Effect": "Allow", "Action": "", **statement}]}
    document["Statement"][0]["Action"] = "x" * (characters - len(json.dumps(document, separators=(",", ":"))))
    return document


def template_of(resources: Any = None, outputs: int = 0, padding: int = 0) -> Template:
    document = {"Resources": resources or {}, "Outputs": {f"O{at}": {"Value": "x"} for at in range(outputs)}}
    return Template("plane", json.dumps(document) + " " * padding, document)


def role(*characters: int, attached: int = 0) -> dict[str, Any]:
    own = [{"PolicyName": str(at), "PolicyDocument": policy(each)} for at, each in enumerate(characters)]
    properties = {"PolicyDocument": policy(attached), "Roles": [{"Ref": "R"}]} if attached else None
    more = {"P": {"Type": "AWS::IAM::Policy", "Properties": properties}} if properties else {}
    return {"R": {"Type": "AWS::IAM::Role", "Properties": {"Policies": own}}, **more}


def one(type: str, **properties: Any) -> dict[str, Any]:
    return {"One": {"Type": type, "Properties": properties}}


def function(characters: int) -> dict[str, Any]:
    """A function whose variables have so many characters: an account's number and a text."""
    rest = "x" * (characters - len('{"A":"000000000000","B":""}'))
    variables = {"A": {"Ref": "AWS::AccountId"}, "B": rest}
    return one("AWS::Lambda::Function", FunctionName="router", Environment={"Variables": variables})


EMPTY = len(template_of().text)
BREAKING = {
    "template": lambda most: template_of(padding=most - EMPTY),
    "resources": lambda most: template_of({f"R{at}": {"Type": "AWS::SQS::Queue"} for at in range(most)}),
    "outputs": lambda most: template_of(outputs=most),
    "variables of a function": lambda most: template_of(function(most)),
    "inline policies of a role": lambda most: template_of(role(5_000, 2_000, attached=most - 7_000)),
    "managed policy": lambda most: template_of(one("AWS::IAM::ManagedPolicy", PolicyDocument=policy(most))),
    "IoT policy": lambda most: template_of(
        one("AWS::IoT::Policy", PolicyName="p", PolicyDocument=policy(most))
    ),
}
"""What has as much as a rule allows, by the rule's name."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_breaks_a_rule_of_aws_is_refused_with_number_source_and_remedy(rule: Any) -> None:
    check(BREAKING[rule.name](rule.most), "eu-central-1")
    with pytest.raises(TemplateRuleError) as caught:
        check(BREAKING[rule.name](rule.most + 1), "eu-central-1")
    said = str(caught.value)
    assert f"of plane has {rule.most + 1:,} {rule.unit}, AWS allows {rule.most:,}" in said
    assert rule.source in said
    assert said.endswith(rule.remedy)
    assert rule.source.startswith("https://docs.aws.amazon.com/")


@pytest.mark.parametrize("region", ["eu-central-2", "af-south-1", "ca-west-1", "mx-central-1"])
def test_a_region_that_lacks_a_kind_of_resource_is_refused(templates: Templates, region: str) -> None:
    (fleet,) = (each for each in rules_of(templates) if each.stack.endswith("fleet"))
    with pytest.raises(RegionError, match=f"{region} has no AWS::IoT::ProvisioningTemplate; nothing was"):
        check(fleet, region)


def rules_of(synthesized: Templates) -> list[Template]:
    return list(templates(synthesized.directory))


def test_every_environment_keeps_the_rules(templates: Templates) -> None:
    for each in rules_of(templates):
        check(each, "eu-central-1")


def test_a_plane_that_is_too_large_is_refused_by_the_rule_that_it_reaches_first() -> None:
    error = refusal("prod", with_services(28))
    assert error is not None
    assert (error.stack, error.rule.name) == ("eventplane-prod-routing", "resources")
