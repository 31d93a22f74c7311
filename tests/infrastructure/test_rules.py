"""Rules for templates: those of AWS, and those of security reviewers."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest

from eventplane_aws import rules
from eventplane_aws.rules import Rule
from lab.benchmarks.plane_size import refusal, with_services
from stacks import application, preflight
from stacks.config import environment
from stacks.rules import SIZES, RegionError, Template, TemplateRuleError, check, templates
from tests.infrastructure.conftest import KEY
from tests.infrastructure.templates import NO_BUNDLING, Templates
from tests.plane import shipped_contract

POLICY = {"Version": "2012-10-17", "Statement": []}


def policy(characters: int, **statement: Any) -> dict[str, Any]:
    """A policy document that has so many characters as AWS counts them."""
    document = {**POLICY, "Statement": [{"Effect": "Allow", "Action": "", **statement}]}
    document["Statement"][0]["Action"] = "x" * (characters - len(json.dumps(document, separators=(",", ":"))))
    return document


def template_of(resources: Any = None, padding: int = 0, **parts: Any) -> Template:
    document = {"Resources": resources or {}, **parts}
    return Template("plane", json.dumps(document) + " " * padding, document)


def entries(most: int) -> dict[str, Any]:
    return {f"E{at}": {"Type": "AWS::SQS::Queue", "Value": "x"} for at in range(most)}


def own(kind: str, *characters: int, attached: int = 0, put: int = 0) -> Template:
    """A role, a group or a user with policies of its own, one that is attached to it, and one put into it."""
    policies = [{"PolicyName": str(at), "PolicyDocument": policy(each)} for at, each in enumerate(characters)]
    found = {"R": {"Type": f"AWS::IAM::{kind}", "Properties": {"Policies": policies}}}
    for type, owner, size in (
        ("Policy", {f"{kind}s": [{"Ref": "R"}]}, attached),
        (f"{kind}Policy", {f"{kind}Name": {"Ref": "R"}}, put),
    ):
        if size:
            found[type] = {
                "Type": f"AWS::IAM::{type}",
                "Properties": {"PolicyDocument": policy(size), **owner},
            }
    return template_of(found)


def one(type: str, **properties: Any) -> Template:
    return template_of({"One": {"Type": f"AWS::{type}", "Properties": properties}})


def function(characters: int) -> Template:
    """A function whose variables have so many characters: an account's number and a text."""
    rest = "x" * (characters - len('{"A":"000000000000","B":""}'))
    variables = {"A": {"Ref": "AWS::AccountId"}, "B": rest}
    return one("Lambda::Function", FunctionName="router", Environment={"Variables": variables})


EMPTY = len(template_of().text)
BREAKING: dict[Rule, Callable[[int], Template]] = {
    rules.TEMPLATE: lambda most: template_of(padding=most - EMPTY),
    rules.RESOURCES: lambda most: template_of(entries(most)),
    rules.OUTPUTS: lambda most: template_of(Outputs=entries(most)),
    rules.PARAMETERS: lambda most: template_of(Parameters=entries(most)),
    rules.MAPPINGS: lambda most: template_of(Mappings=entries(most)),
    rules.VARIABLES: function,
    rules.LAYERS: lambda most: one("Lambda::Function", Layers=["x"] * most),
    rules.LAMBDA_TIMEOUT: lambda most: one("Lambda::Function", Timeout=most),
    rules.LAMBDA_MEMORY: lambda most: one("Lambda::Function", MemorySize=most),
    rules.MAPPING_BATCH: lambda most: one("Lambda::EventSourceMapping", BatchSize=most),
    rules.MAPPING_WINDOW: lambda most: one("Lambda::EventSourceMapping", MaximumBatchingWindowInSeconds=most),
    rules.MAPPING_CONCURRENCY: lambda most: one(
        "Lambda::EventSourceMapping", ScalingConfig={"MaximumConcurrency": most}
    ),
    rules.INLINE_POLICIES: lambda most: own("Role", 5_000, 2_000, attached=1_000, put=most - 8_000),
    rules.GROUP_POLICIES: lambda most: own("Group", 2_000, attached=most - 2_000),
    rules.USER_POLICIES: lambda most: own("User", 1_000, attached=most - 1_000),
    rules.TRUST_POLICY: lambda most: one("IAM::Role", AssumeRolePolicyDocument=policy(most)),
    rules.MANAGED_POLICY: lambda most: one("IAM::ManagedPolicy", PolicyDocument=policy(most)),
    rules.MANAGED_POLICIES: lambda most: one("IAM::Role", ManagedPolicyArns=["x"] * most),
    rules.IOT_POLICY: lambda most: one("IoT::Policy", PolicyName="p", PolicyDocument=policy(most)),
    rules.QUEUE_POLICY: lambda most: one("SQS::QueuePolicy", PolicyDocument=policy(most)),
    rules.QUEUE_STATEMENTS: lambda most: one("SQS::QueuePolicy", PolicyDocument={"Statement": [{}] * most}),
    rules.BUCKET_POLICY: lambda most: one("S3::BucketPolicy", PolicyDocument=policy(most)),
    rules.KEY_POLICY: lambda most: one("KMS::Key", KeyPolicy=policy(most)),
    rules.RULE_ACTIONS: lambda most: one("IoT::TopicRule", TopicRulePayload={"Actions": [{}] * most}),
    rules.JOB_TIMEOUT: lambda most: one("Glue::Job", Timeout=most),
    rules.BUDGET_SUBSCRIBERS: lambda most: one(
        "Budgets::Budget",
        NotificationsWithSubscribers=[{"Subscribers": [{"SubscriptionType": "EMAIL"}] * most}],
    ),
    rules.WIDGET_ALARMS: lambda most: one(
        "CloudWatch::Dashboard",
        DashboardBody=json.dumps({"widgets": [{"properties": {"alarms": [""] * most}}]}),
    ),
    rules.ALARM_ACTIONS: lambda most: one("CloudWatch::Alarm", OKActions=["x"] * most),
    rules.ALARM_METRICS: lambda most: one("CloudWatch::Alarm", Metrics=[{}, *[{"MetricStat": {}}] * most]),
    rules.SCHEDULE_INPUT: lambda most: one("Scheduler::Schedule", Target={"Input": "x" * most}),
    rules.STACK_NAME: lambda most: replace(template_of(), stack="x" * most),
}
BREAKING |= {
    rule: partial(lambda type, name, most: one(type.removeprefix("AWS::"), **{name: "x" * most}), type, name)
    for type, (name, rule) in rules.NAMES.items()
}
"""What has as much as a rule allows, by the rule."""


@pytest.mark.parametrize("rule", SIZES, ids=lambda rule: rule.name)
def test_what_breaks_a_rule_is_refused(rule: Any) -> None:
    check(BREAKING[rule](rule.most), "eu-central-1")
    with pytest.raises(TemplateRuleError) as caught:
        check(BREAKING[rule](rule.most + 1), "eu-central-1")
    said = str(caught.value)
    assert f" has {rule.most + 1:,} {rule.unit}, AWS allows {rule.most:,} ({rule.source})" in said
    assert said.endswith(f"nothing was deployed: {rule.remedy}")


@pytest.mark.parametrize("region", ["eu-central-2", "af-south-1", "ca-west-1", "mx-central-1"])
def test_a_lacking_region_is_refused(dev: Templates, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At synthesis, and by the preflight where synthesis did not know the region."""
    (fleet,) = (each for each in rules_of(dev) if each.stack.endswith("fleet"))
    monkeypatch.setenv("AWS_REGION", region)
    for refuses in (lambda: check(fleet, region), lambda: preflight.main([str(dev.directory), "dev"])):
        with pytest.raises(RegionError, match=f"{region} has no AWS::IoT::ProvisioningTemplate; nothing was"):
            refuses()


def rules_of(synthesized: Templates) -> list[Template]:
    return list(templates(synthesized.directory))


def test_every_environment_keeps_the_rules(templates: Templates) -> None:
    for each in rules_of(templates):
        check(each, "eu-central-1")


def test_a_large_plane_is_within_all_rules() -> None:
    assert refusal("prod", with_services(60, routes=1_000)) is None


def test_too_large_a_plane_is_refused_by_rule() -> None:
    error = refusal("prod", with_services(86, ask=False, routes=1_000))
    assert (error.stack, error.rule) == ("eventplane-prod-messaging", rules.OUTPUTS)


ROOT = Path(__file__).parents[2]
REVIEW = tomllib.loads((ROOT / "stacks/security_review.toml").read_text())
PACKS = (cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks, cdk_nag.ServerlessChecks)


def test_each_finding_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = cdk.App(context=NO_BUNDLING, outdir=str(tmp_path))
    with_key = replace(environment("prod").with_placeholders(), customer_key=KEY, records_reads=True)
    application.build(app, with_key, shipped_contract())
    cdk.Validations.of(app).add_plugins(*(pack(app) for pack in PACKS))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    found = {each["ruleName"] for pack in report["pluginReports"] for each in pack["violations"]}
    excepted = {f"{pack}-{each['rule']}" for each in REVIEW["exception"] for pack in each["packs"]}
    assert found == excepted


def test_what_controls_name_is_there() -> None:
    for control in REVIEW["control"]:
        for place in control["where"].replace(";", ",").split(","):
            path = place.strip()
            folders = ("", "stacks/constructs")
            assert any((ROOT / folder / path).exists() for folder in folders), f"{control['name']}: {path}"
