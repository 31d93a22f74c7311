"""Synthesized templates, and the questions that the tests ask them."""

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar

import aws_cdk as cdk
from aws_cdk.cx_api import CloudFormationStackArtifact as StackArtifact

from eventplane.contract import Contract
from eventplane.settings import Settings
from stacks.application import build
from stacks.environment import Environment

_CONTEXT = json.loads(Path(__file__).parents[2].joinpath("cdk.json").read_text())["context"]

# What makes a new version of a function; policies stay one statement each, as they were written.
BUNDLING = {name: value for name, value in _CONTEXT.items() if "aws-lambda" in name or "core:s" in name}
NO_BUNDLING = {**BUNDLING, "aws:cdk:bundling-stacks": []}

ALIAS = "AWS::Lambda::Alias"
FUNCTION = "AWS::Lambda::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
QUEUE = "AWS::SQS::Queue"
RULE = "AWS::IoT::TopicRule"
SCHEDULE = "AWS::Scheduler::Schedule"

_NAMES = ("FunctionName", "QueueName", "RuleName", "AlarmName", "TopicName", "TableName", "PolicyName")
_NAMES += ("ManagedPolicyName", "TemplateName", "Name")

_S = TypeVar("_S", bound=Settings)


@dataclass(frozen=True)
class Resource:
    """One resource of a template. `stack` is the stack's name without project and environment."""

    stack: str
    id: str
    type: str
    properties: dict[str, Any]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.stack}/{self.id}"

    def find(self, *path: str) -> Any:
        """A property down a path, None where it ends early."""
        value: Any = self.properties
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @property
    def name(self) -> str:
        """Its name without project and environment; '' if the template gives it none."""
        given = next((self.properties[each] for each in _NAMES if each in self.properties), "")
        return re.sub(r"^eventplane[-_][a-z0-9]+[-_]", "", given) if isinstance(given, str) else ""

    @property
    def variables(self) -> dict[str, Any]:
        """The environment variables of a function."""
        return self.find("Environment", "Variables") or {}

    def settings(self, kind: type[_S]) -> _S:
        """The settings that a function reads, without what AWS fills in."""
        return kind.read(
            {name: each if isinstance(each, str) else joined(each) for name, each in self.variables.items()}
        )

    @property
    def source(self) -> str:
        """The name of the queue that a function is told as its own; '' if it has none."""
        url = json.dumps(self.variables.get("EVENTPLANE_SOURCE_QUEUE", ""))
        return last_part(url).rpartition("/")[2]

    @property
    def module(self) -> str:
        """The package of a function's handler: `lambdas/router`, `parts/webhooks`."""
        return "/".join(str(self.find("Handler")).split(".")[:2])


class Templates:
    """All stacks of an environment, synthesized; with its assets where it `bundles`."""

    def __init__(self, environment: Environment, contract: Contract, *, bundles: bool = False) -> None:
        self.contract = contract
        self.environment = environment.with_placeholders() if environment.keeps_data else environment
        app = cdk.App(context=BUNDLING if bundles else NO_BUNDLING)
        build(app, self.environment, contract)
        # Raises when cdk-nag finds what nobody has accepted.
        assembly = app.synth()
        self.directory = Path(assembly.directory)
        self.documents = {_short(stack): stack.template for stack in assembly.stacks}
        self.needs = {
            _short(stack): {_short(each) for each in stack.dependencies if isinstance(each, StackArtifact)}
            for stack in assembly.stacks
        }
        self.protected = {each.stack_name for each in assembly.stacks if each.termination_protection}
        self.tags = {stack.stack_name: dict(stack.tags) for stack in assembly.stacks}

    @property
    def rollout_minutes(self) -> int:
        """How long aliases shift when all functions change. What needs no other is deployed side by side."""
        return _longest(self.needs, {stack: self._rollout_minutes(stack) for stack in self.documents})

    def _rollout_minutes(self, stack: str) -> int:
        resources = {each.id: each for each in self.of(stack=stack)}
        minutes = {}
        for id, each in resources.items():
            if update := each.attributes.get("UpdatePolicy", {}).get("CodeDeployLambdaAliasUpdate"):
                group = resources[update["DeploymentGroupName"]["Ref"]]
                minutes[id] = int(re.findall(r"(\d+)Minutes", group.find("DeploymentConfigName"))[0])
        texts = {id: json.dumps(each.attributes) for id, each in resources.items()}
        needs = {id: {*re.findall(r'"(\w+)"', text)} & texts.keys() - {id} for id, text in texts.items()}
        return _longest(needs, minutes)

    @cached_property
    def _all(self) -> list[Resource]:
        return [
            Resource(stack, id, resource["Type"], resource.get("Properties", {}), resource)
            for stack, document in self.documents.items()
            for id, resource in document.get("Resources", {}).items()
        ]

    def of(self, *types: str, stack: str | None = None) -> list[Resource]:
        """All resources of these types, of every type without any; in one stack, or in all."""
        return [
            each
            for each in self._all
            if (not types or each.type in types) and (stack is None or each.stack == stack)
        ]

    def one(self, type: str, name: str) -> Resource:
        """The one resource of a type that is called so, or whose logical id begins so."""
        (found,) = (each for each in self.of(type) if each.name == name or each.id.startswith(name))
        return found

    def ids(self) -> set[str]:
        """What there is, but for versions of functions: each deployment publishes new ones."""
        return {str(each) for each in self.of() if each.type != "AWS::Lambda::Version"}

    @cached_property
    def queues(self) -> dict[str, Resource]:
        """The queues by name, without `.fifo`."""
        return {each.name.removesuffix(".fifo"): each for each in self.of(QUEUE)}

    @cached_property
    def functions(self) -> dict[str, Resource]:
        return {each.name: each for each in self.of(FUNCTION)}

    @cached_property
    def mappings(self) -> dict[str, Resource]:
        """What feeds functions, by the name of the queue."""
        return {
            json.dumps(each.find("EventSourceArn")).rsplit(":eventplane-", 1)[-1].split("-", 1)[1]
            .strip('"]} ').removesuffix(".fifo"): each
            for each in self.of(MAPPING)
        }  # fmt: skip

    def function_behind(self, caller: Resource, *path: str) -> Resource:
        """The function that a property of `caller` leads to, by its own name or by that of its alias."""
        text = json.dumps(caller.find(*path))
        (found,) = (each for each in self.of(stack=caller.stack) if f'"{each.id}"' in text)
        return self.function_behind(found, "FunctionName") if found.type == ALIAS else found

    def role(self, user: Resource, *path: str) -> Resource:
        """The role that a resource has, in its property `Role` or down a path."""
        id = user.find(*(path or ("Role",)))["Fn::GetAtt"][0]
        (found,) = (each for each in self.of("AWS::IAM::Role", stack=user.stack) if each.id == id)
        return found

    def may(self, function: Resource) -> dict[str, set[str]]:
        """What a function may do, and to what, by the last part of each name; without its log."""
        return {
            action: {last_part(each) for each in targets}
            for action, targets in granted(self, self.role(function)).items()
            if not action.startswith("logs:")
        }

    def outputs(self, stack: str) -> dict[str, Any]:
        return {name: output["Value"] for name, output in self.documents[stack]["Outputs"].items()}


def _short(stack: StackArtifact) -> str:
    """The name of a stack without project and environment."""
    return stack.stack_name.rsplit("-", 1)[-1]


def _longest(needs: Mapping[str, Set[str]], minutes: Mapping[str, int]) -> int:
    """The minutes of the longest chain in which each takes its own after those it needs."""
    ends: dict[str, int] = {}
    for each in TopologicalSorter(needs).static_order():
        ends[each] = minutes.get(each, 0) + max((ends[other] for other in needs[each]), default=0)
    return max(ends.values())


def statements(resource: Resource) -> Iterator[dict[str, Any]]:
    """Every policy statement in a resource, trust policies included."""
    documents = [
        resource.find("PolicyDocument"),
        resource.find("AssumeRolePolicyDocument"),
        *(policy["PolicyDocument"] for policy in resource.properties.get("Policies", [])),
    ]
    for document in documents:
        if document:
            yield from document["Statement"]


def role_statements(templates: Templates, role: Resource) -> Iterator[dict[str, Any]]:
    """Every statement in a role's own policies, its trust policy included, and in those attached to it."""
    policies = templates.of("AWS::IAM::Policy", stack=role.stack)
    for holder in (role, *(each for each in policies if {"Ref": role.id} in each.find("Roles"))):
        yield from statements(holder)


def granted(templates: Templates, role: Resource) -> dict[str, list[str]]:
    """What a role may do, and to what, by its own policies and those attached to it."""
    found: dict[str, list[str]] = {}
    for statement in role_statements(templates, role):
        for action in words(statement["Action"]) if "Resource" in statement else []:
            found.setdefault(action, []).extend(words(statement["Resource"]))
    return found


def words(value: Any) -> list[str]:
    """A value that may be one or a list, as texts; intrinsic functions as their JSON."""
    values = value if isinstance(value, list) else [value]
    return [each if isinstance(each, str) else json.dumps(each) for each in values]


def joined(value: Any, reference: str = "") -> str:
    """The text that a name in a template is joined of, with `reference` for what AWS fills in."""
    return "".join(each if isinstance(each, str) else reference for each in value["Fn::Join"][1])


def last_part(name: str) -> str:
    """What an ARN or URL ends with, without project and environment; `bucket` for a bucket as a whole."""
    if name.endswith('{"Ref": "AWS::Region"}]]}'):
        return "bucket"
    literal = re.search(r'"([^"]*)"\W*$', name)
    return re.sub(r"eventplane-\w+-(?=\w)", "", re.split("[:]", literal[1] if literal else name)[-1])
