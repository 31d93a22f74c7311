"""Synthesised templates, and the questions that the tests ask them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from eventplane.contract import Contract
from stacks.application import build
from stacks.config import environment
from stacks.environment import Environment

_CONTEXT = json.loads(Path(__file__).parents[2].joinpath("cdk.json").read_text())["context"]

NO_BUNDLING = {
    # What makes a new version of a function; policies stay one statement each, as they were written.
    **{name: value for name, value in _CONTEXT.items() if "aws-lambda" in name},
    "aws:cdk:bundling-stacks": [],
}


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


ALIAS = "AWS::Lambda::Alias"


class Templates:
    """All stacks of one environment."""

    def __init__(self, name: str | Environment, contract: Contract) -> None:
        app = cdk.App(context=NO_BUNDLING)
        chosen = environment(name) if isinstance(name, str) else name
        build(app, chosen.with_placeholders() if chosen.keeps_data else chosen, contract)
        # Raises when cdk-nag finds what nobody has accepted.
        assembly = app.synth()
        self.documents = {stack.stack_name.rsplit("-", 1)[-1]: stack.template for stack in assembly.stacks}
        self.protected = {each.stack_name for each in assembly.stacks if each.termination_protection}
        self.tags = {stack.stack_name: dict(stack.tags) for stack in assembly.stacks}

    def of(self, *types: str) -> list[Resource]:
        """All resources of these types, in all stacks; of every type without any."""
        return [each for each in self._all() if not types or each.type in types]

    def ids(self) -> set[str]:
        """What there is, but for versions of functions: each deployment publishes new ones."""
        return {str(each) for each in self.of() if each.type != "AWS::Lambda::Version"}

    def function_behind(self, caller: Resource, *path: str) -> Resource:
        """The function that a property of `caller` leads to, by its own name or by that of its alias."""
        text = json.dumps(caller.find(*path))
        here = {each.id: each for each in self.of() if each.stack == caller.stack and f'"{each.id}"' in text}
        (found,) = here.values()
        return self.function_behind(found, "FunctionName") if found.type == ALIAS else found

    def function(self, name: str) -> Resource:
        """The function called `name`, without project and environment."""
        (found,) = (
            each
            for each in self.of("AWS::Lambda::Function")
            if each.find("FunctionName").split("-", 2)[2] == name
        )
        return found

    def may(self, function: Resource) -> dict[str, set[str]]:
        """What a function may do, and to what, by the last part of each name; without its log."""
        id = function.find("Role")["Fn::GetAtt"][0]
        (role,) = (
            each for each in self.of("AWS::IAM::Role") if (each.stack, each.id) == (function.stack, id)
        )
        return {
            action: {last_part(each) for each in targets}
            for action, targets in granted(self, role).items()
            if not action.startswith("logs:")
        }

    def outputs(self, stack: str) -> dict[str, Any]:
        return {name: output["Value"] for name, output in self.documents[stack]["Outputs"].items()}

    def _all(self) -> Iterator[Resource]:
        for stack, document in self.documents.items():
            for id, resource in document.get("Resources", {}).items():
                yield Resource(stack, id, resource["Type"], resource.get("Properties", {}), resource)


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


def granted(templates: Templates, role: Resource) -> dict[str, list[str]]:
    """What a role may do, and to what, by its own policies and those attached to it."""
    attached = [each for each in templates.of("AWS::IAM::Policy") if {"Ref": role.id} in each.find("Roles")]
    found: dict[str, list[str]] = {}
    for holder in (role, *(each for each in attached if each.stack == role.stack)):
        for statement in statements(holder):
            for action in words(statement["Action"]) if "Resource" in statement else []:
                found.setdefault(action, []).extend(words(statement["Resource"]))
    return found


def words(value: Any) -> list[str]:
    """A value that may be one or a list, as texts; intrinsic functions as their JSON."""
    values = value if isinstance(value, list) else [value]
    return [each if isinstance(each, str) else json.dumps(each) for each in values]


def last_part(name: str) -> str:
    """What an ARN or URL ends with, without project and environment."""
    literal = re.search(r'"([^"]*)"\W*$', name)
    return re.sub(r"eventplane-\w+-(?=\w)", "", re.split("[:]", literal[1] if literal else name)[-1])


def queues_of(rule: Resource) -> list[str]:
    """The queues that a rule of IoT Core sends to, the one of its error action last."""
    payload = rule.find("TopicRulePayload")
    actions = [*payload["Actions"], payload["ErrorAction"]]
    return [last_part(json.dumps(each["Sqs"]["QueueUrl"])).rsplit("/", 1)[-1] for each in actions]
