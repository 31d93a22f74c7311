"""Refuse templates that break a rule of AWS (`eventplane_aws.rules`).

CloudFormation finds it when other stacks are deployed already, so synthesis looks first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventplane.errors import EventPlaneError
from eventplane_aws import rules
from eventplane_aws.rules import Rule
from stacks.deployment import stack_templates

if TYPE_CHECKING:
    import aws_cdk as cdk  # slow, and who reads the rules needs no app

_LONGEST: Final = {
    "AWS::Partition": "aws",
    "AWS::Region": "ap-southeast-7",
    "AWS::AccountId": "0" * 12,
    "AWS::URLSuffix": "amazonaws.com",
}
"""What AWS fills in, at its longest."""

_MAPPING: Final = "AWS::Lambda::EventSourceMapping"

_ARN: Final = f"arn:aws:lambda:{_LONGEST['AWS::Region']}:{_LONGEST['AWS::AccountId']}:function:"


@dataclass(frozen=True, slots=True)
class Template:
    """The template of the `stack` of that name: its `text`, and what that says."""

    stack: str
    text: str
    document: Mapping[str, Any]

    def properties(self, *types: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield logical id and properties of the resources of these types."""
        for id, resource in self.document.get("Resources", {}).items():
            if resource["Type"] in types:
                yield id, resource.get("Properties", {})

    def filled_in(self, value: Any) -> Any:
        """Return `value` as AWS gets it, with names that only AWS knows as long as they can be."""
        match value:
            case {"Ref": str(name)}:
                return _LONGEST.get(name) or self._longest_name(name)
            case {"Fn::GetAtt": [str(id), str()]}:
                return f"{_ARN}{self._longest_name(id)}"
            case {"Fn::Join": [str(between), list(parts)]}:
                return between.join(str(self.filled_in(each)) for each in parts)
            case dict():
                return {name: self.filled_in(each) for name, each in value.items()}
            case list():
                return [self.filled_in(each) for each in value]
        return value

    def name(self, id: str) -> str | None:
        """Return the name that a resource has from the template."""
        resource = self.document.get("Resources", {}).get(id, {"Type": ""})
        key, _ = rules.NAMES.get(resource["Type"], ("", None))
        named = resource.get("Properties", {}).get(key)
        return str(self.filled_in(named)) if named else None

    def _longest_name(self, id: str) -> str:
        return self.name(id) or f"{self.stack}-{id}-".ljust(64, "X")

    def size(self, value: Any) -> int:
        """Return the number of characters of `value` in JSON, without white space between its parts."""
        return len(json.dumps(self.filled_in(value), separators=(",", ":")))


class TemplateRuleError(EventPlaneError):
    """AWS would refuse the `stack`, for what is called `where` in it and has the `size`."""

    stack: str
    where: str
    size: int
    rule: Rule
    message = (
        "{where} of {stack} has {size:,} {rule.unit}, AWS allows {rule.most:,} ({rule.source}); nothing was "
        "deployed: {rule.remedy}"
    )


class RegionError(EventPlaneError):
    """The `region` does not have `types`, kinds of resources of the plane."""

    region: str
    types: str
    message = "{region} has no {types}; nothing was deployed: choose another (stacks/environments.toml)"


Sizes = Callable[[Template], Iterable[tuple[str, int]]]
"""Names of what a template has, each with how much it has of what a rule bounds."""


def _count(part: str) -> Sizes:
    return lambda template: [("the template", len(template.document.get(part, ())))]


def _sizes(type: str, *paths: str, of: Callable[[Template, Any], int] = Template.size) -> Sizes:
    """Sizes of the properties at `paths`, each `a.b`, of the resources of a type."""

    def sizes(template: Template) -> Iterator[tuple[str, int]]:
        for id, properties in template.properties(type):
            for path in paths:
                found: Any = reduce(lambda part, name: part.get(name, {}), path.split("."), properties)
                yield template.name(id) or id, of(template, found)

    return sizes


def _number(_: Template, value: Any) -> int:
    return int(value or 0)


def _entries(_: Template, value: Any) -> int:
    return len(value)


def _addresses(_: Template, notifications: Any) -> int:
    mail = [[to["SubscriptionType"] for to in each["Subscribers"]].count("EMAIL") for each in notifications]
    return max(mail, default=0)


def _alarms(template: Template, body: Any) -> int:
    widgets = json.loads(template.filled_in(body))["widgets"]
    return max((len(each["properties"].get("alarms", ())) for each in widgets), default=0)


def _metrics(_: Template, queries: Any) -> int:
    return sum("MetricStat" in each for each in queries)


def _characters(template: Template, value: Any) -> int:
    return len(str(template.filled_in(value))) if value else 0


def _inline(kind: str) -> Sizes:
    """What roles, groups or users have in policies of their own, and in those put into them."""

    def sizes(template: Template) -> Iterable[tuple[str, int]]:
        found: Counter[str] = Counter()
        for id, properties in template.properties(f"AWS::IAM::{kind}"):
            found[id] += sum(template.size(each["PolicyDocument"]) for each in properties.get("Policies", ()))
        for _, properties in template.properties("AWS::IAM::Policy", f"AWS::IAM::{kind}Policy"):
            owners = [*properties.get(f"{kind}s", ()), properties.get(f"{kind}Name")]
            for owner in filter(None, owners):
                id = owner.get("Ref", str(owner)) if isinstance(owner, dict) else owner
                found[id] += template.size(properties["PolicyDocument"])
        return found.items()

    return sizes


SIZES: Final[Mapping[Rule, Sizes]] = {
    rules.TEMPLATE: lambda template: [("the template", len(template.text.encode()))],
    rules.RESOURCES: _count("Resources"),
    rules.OUTPUTS: _count("Outputs"),
    rules.PARAMETERS: _count("Parameters"),
    rules.MAPPINGS: _count("Mappings"),
    rules.VARIABLES: _sizes("AWS::Lambda::Function", "Environment.Variables"),
    rules.LAYERS: _sizes("AWS::Lambda::Function", "Layers", of=_entries),
    rules.LAMBDA_TIMEOUT: _sizes("AWS::Lambda::Function", "Timeout", of=_number),
    rules.LAMBDA_MEMORY: _sizes("AWS::Lambda::Function", "MemorySize", of=_number),
    rules.MAPPING_BATCH: _sizes(_MAPPING, "BatchSize", of=_number),
    rules.MAPPING_WINDOW: _sizes(_MAPPING, "MaximumBatchingWindowInSeconds", of=_number),
    rules.MAPPING_CONCURRENCY: _sizes(_MAPPING, "ScalingConfig.MaximumConcurrency", of=_number),
    rules.INLINE_POLICIES: _inline("Role"),
    rules.GROUP_POLICIES: _inline("Group"),
    rules.USER_POLICIES: _inline("User"),
    rules.TRUST_POLICY: _sizes("AWS::IAM::Role", "AssumeRolePolicyDocument"),
    rules.MANAGED_POLICY: _sizes("AWS::IAM::ManagedPolicy", "PolicyDocument"),
    rules.MANAGED_POLICIES: _sizes("AWS::IAM::Role", "ManagedPolicyArns", of=_entries),
    rules.IOT_POLICY: _sizes("AWS::IoT::Policy", "PolicyDocument"),
    rules.QUEUE_POLICY: _sizes("AWS::SQS::QueuePolicy", "PolicyDocument"),
    rules.QUEUE_STATEMENTS: _sizes("AWS::SQS::QueuePolicy", "PolicyDocument.Statement", of=_entries),
    rules.BUCKET_POLICY: _sizes("AWS::S3::BucketPolicy", "PolicyDocument"),
    rules.KEY_POLICY: _sizes("AWS::KMS::Key", "KeyPolicy"),
    rules.RULE_ACTIONS: _sizes("AWS::IoT::TopicRule", "TopicRulePayload.Actions", of=_entries),
    rules.JOB_TIMEOUT: _sizes("AWS::Glue::Job", "Timeout", of=_number),
    rules.BUDGET_SUBSCRIBERS: _sizes("AWS::Budgets::Budget", "NotificationsWithSubscribers", of=_addresses),
    rules.WIDGET_ALARMS: _sizes("AWS::CloudWatch::Dashboard", "DashboardBody", of=_alarms),
    rules.ALARM_ACTIONS: _sizes(
        "AWS::CloudWatch::Alarm", "AlarmActions", "OKActions", "InsufficientDataActions", of=_entries
    ),
    rules.ALARM_METRICS: _sizes("AWS::CloudWatch::Alarm", "Metrics", of=_metrics),
    rules.SCHEDULE_INPUT: _sizes("AWS::Scheduler::Schedule", "Target.Input", of=_characters),
    rules.STACK_NAME: lambda template: [(template.stack, len(template.stack))],
    **{rule: _sizes(type, name, of=_characters) for type, (name, rule) in rules.NAMES.items()},
}
"""What finds the sizes of each rule, in the order in which they are looked at."""


def templates(assembly: Path) -> Iterator[Template]:
    """Yield the templates in the directory `assembly`, which `cdk synth` wrote."""
    for artifact, text in stack_templates(assembly):
        yield Template(artifact["properties"]["stackName"], text, json.loads(text))


def check(template: Template, region: str | None) -> None:
    """Raise `TemplateRuleError` or `RegionError` where AWS would refuse `template` in `region`."""
    for rule, sizes in SIZES.items():
        for where, size in sizes(template):
            if size > rule.most:
                raise TemplateRuleError(template.stack, where, size, rule)
    if region:
        types = (each["Type"] for each in template.document.get("Resources", {}).values())
        used = {each for each in types if each.startswith("AWS::")}
        if missing := sorted(used - _types_in(region, used)):
            raise RegionError(region, ", ".join(missing))


def _types_in(region: str, used: set[str]) -> set[str]:
    """The types of resources in `region`, as cfn-lint has them: of a region that it does not know, all."""
    found = files("cfnlint.data.schemas.providers") / f"{region}.json"
    return {*json.loads(found.read_text())} if found.is_file() else used


def synthesize(app: cdk.App, region: str | None) -> Path:
    """Write the assembly of `app`, and return its directory. Raises what `check` raises."""
    directory = Path(app.synth().directory)
    for each in templates(directory):
        check(each, region)
    return directory
