"""AWS's rules for templates, each with its number and source.

No emulator has them, and CloudFormation finds them when other stacks are deployed already: so synthesis
refuses what breaks one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventplane.errors import EventPlaneError
from stacks.deployment import stack_templates

if TYPE_CHECKING:
    import aws_cdk as cdk  # slow, and who reads the rules needs no app

_QUOTAS_OF_CLOUDFORMATION: Final = (
    "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"
)
_QUOTAS_OF_IAM: Final = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
_QUOTAS_OF_LAMBDA: Final = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
_QUOTAS_OF_IOT: Final = "https://docs.aws.amazon.com/general/latest/gr/iot-core.html"

_FEWER_SERVICES: Final = "have fewer cloud services in one plane, or let fewer of them ask"
_SHORTER_NAMES: Final = "let fewer services ask, or choose shorter names for new ones"

_LONGEST: Final = {
    "AWS::Partition": "aws",
    "AWS::Region": "ap-southeast-7",
    "AWS::AccountId": "0" * 12,
    "AWS::URLSuffix": "amazonaws.com",
}
"""What AWS fills in, at its longest."""

_ARN: Final = f"arn:aws:lambda:{_LONGEST['AWS::Region']}:{_LONGEST['AWS::AccountId']}:function:"

_NAMES: Final = ("FunctionName", "TableName", "RoleName", "QueueName", "TopicName")


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
                return _LONGEST.get(name) or self._name(name)
            case {"Fn::GetAtt": [str(id), str()]}:
                return f"{_ARN}{self._name(id)}"
            case {"Fn::Join": [str(between), list(parts)]}:
                return between.join(str(self.filled_in(each)) for each in parts)
            case dict():
                return {name: self.filled_in(each) for name, each in value.items()}
            case list():
                return [self.filled_in(each) for each in value]
        return value

    def _name(self, id: str) -> str:
        properties = self.document.get("Resources", {}).get(id, {}).get("Properties", {})
        named = (str(properties[each]) for each in _NAMES if each in properties)
        return next(named, f"{self.stack}-{id}-".ljust(64, "X"))

    def size(self, value: Any) -> int:
        """How many characters `value` has in JSON, without white space between its parts."""
        return len(json.dumps(self.filled_in(value), separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class Rule:
    """What `sizes` finds in a template, by a name, may have at most `most` of `unit`, says `source`."""

    name: str
    most: int
    unit: str
    source: str
    remedy: str
    sizes: Callable[[Template], Iterable[tuple[str, int]]]


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
    message = "{region} has no {types}; nothing was deployed: choose another region (stacks/config.py)"


def _sizes_of(type: str, name: str, part: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Iterator[Any]]:
    """Sizes of a part of each resource of a type, which calls itself by the property `name`."""

    def sizes(template: Template) -> Iterator[tuple[str, int]]:
        for id, properties in template.properties(type):
            yield str(template.filled_in(properties.get(name, id))), template.size(part(properties))

    return sizes


def _inline(template: Template) -> Iterator[tuple[str, int]]:
    """What a role's own policies, and those put into it, have together."""
    sizes = {
        id: sum(template.size(each["PolicyDocument"]) for each in properties.get("Policies", ()))
        for id, properties in template.properties("AWS::IAM::Role")
    }
    for _, properties in template.properties("AWS::IAM::Policy"):
        for role in properties.get("Roles", ()):
            sizes[role["Ref"]] += template.size(properties["PolicyDocument"])
    return iter(sizes.items())


RULES: Final = (
    Rule(
        "template",
        1_000_000,
        "bytes",
        _QUOTAS_OF_CLOUDFORMATION,
        _FEWER_SERVICES,
        lambda template: [("the template", len(template.text.encode()))],
    ),
    Rule(
        "resources",
        500,
        "resources",
        _QUOTAS_OF_CLOUDFORMATION,
        _FEWER_SERVICES,
        lambda template: [("the template", len(template.document.get("Resources", ())))],
    ),
    Rule(
        "outputs",
        200,
        "outputs",
        _QUOTAS_OF_CLOUDFORMATION,
        _FEWER_SERVICES,
        lambda template: [("the template", len(template.document.get("Outputs", ())))],
    ),
    Rule(
        "variables of a function",
        4_096,
        "bytes",
        _QUOTAS_OF_LAMBDA,
        _SHORTER_NAMES,
        _sizes_of(
            "AWS::Lambda::Function",
            "FunctionName",
            lambda each: each.get("Environment", {}).get("Variables", {}),
        ),
    ),
    Rule("inline policies of a role", 10_240, "characters", _QUOTAS_OF_IAM, _FEWER_SERVICES, _inline),
    Rule(
        "managed policy",
        6_144,
        "characters",
        _QUOTAS_OF_IAM,
        _SHORTER_NAMES,
        _sizes_of("AWS::IAM::ManagedPolicy", "ManagedPolicyName", lambda each: each["PolicyDocument"]),
    ),
    Rule(
        "IoT policy",
        2_048,
        "characters",
        _QUOTAS_OF_IOT,
        "choose a shorter name of the environment",
        _sizes_of("AWS::IoT::Policy", "PolicyName", lambda each: each["PolicyDocument"]),
    ),
)
"""What bounds a stack, in the order in which it is looked at."""


def templates(assembly: Path) -> Iterator[Template]:
    """Yield the templates in the directory `assembly`, which `cdk synth` wrote."""
    for artifact, text in stack_templates(assembly):
        yield Template(artifact["properties"]["stackName"], text, json.loads(text))


def check(template: Template, region: str | None) -> None:
    """Raise `TemplateRuleError` or `RegionError` where AWS would refuse `template` in `region`."""
    for rule in RULES:
        for where, size in rule.sizes(template):
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
