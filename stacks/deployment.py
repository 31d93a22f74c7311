"""Read what is deployed from AWS, and what is planned from a cloud assembly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

from eventplane.errors import EventPlaneError
from eventplane.resource_names import RETIRED_OUTPUT

_QUEUE: Final = "AWS::SQS::Queue"
_GONE: Final = frozenset({"DELETE_COMPLETE", "DELETE_SKIPPED"})
_COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class NotApprovedError(EventPlaneError):
    """It was not confirmed that something may be done to `environment`."""

    environment: str
    message = (
        "nothing was changed: it was not confirmed for {environment!r}. Answer with the environment's name; "
        "without a terminal, give YES={environment} to make"
    )


def confirm(question: str, environment: str, yes: str | None, ask: Callable[[str], str] = input) -> None:
    """Have `question` answered with the name of `environment`, which `yes` may say beforehand.

    Raises `NotApprovedError`, also where there is nobody to ask.
    """
    try:
        answer = ask(f"{question} Its name again: ") if yes is None else yes
    except (EOFError, OSError, RuntimeError):  # no input, or a closed one
        answer = ""
    if answer != environment:
        raise NotApprovedError(environment)


class RegionMissingError(EventPlaneError):
    """Nothing names a region."""

    message = "no AWS region is chosen; set AWS_REGION, or name its region in stacks/environments.toml"


def session_in(region: str | None) -> Any:
    """Return the session in `region`, or in the one that the caller has chosen, as AWS's own tools read it.

    boto3 itself does not read AWS_REGION. Raises `RegionMissingError`.
    """
    session = boto3.Session(region_name=region or os.environ.get("AWS_REGION") or None)
    if session.region_name is None:
        raise RegionMissingError
    return session


@dataclass(frozen=True, slots=True)
class PlannedStack:
    """A stack of an assembly by its name, with the names of its queues and its resources by logical id.

    `region` is where it goes, None where the credentials lead.
    """

    name: str
    region: str | None
    queues: frozenset[str]
    resources: Mapping[str, Any] = field(default_factory=dict)


def planned_stacks(assembly: Path) -> list[PlannedStack]:
    """The stacks in the directory `assembly`, which `cdk synth` wrote. Raises OSError when it is none."""
    return [_planned(artifact, json.loads(text)) for artifact, text in stack_templates(assembly)]


def stack_templates(assembly: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield what the manifest of `assembly` says of each stack, and the text of its template."""
    for artifact in json.loads((assembly / "manifest.json").read_text())["artifacts"].values():
        if artifact["type"] == "aws:cloudformation:stack":
            yield artifact, (assembly / artifact["properties"]["templateFile"]).read_text()


def _planned(artifact: Mapping[str, Any], template: Mapping[str, Any]) -> PlannedStack:
    resources = template.get("Resources", {})
    queues = (each["Properties"]["QueueName"] for each in resources.values() if each["Type"] == _QUEUE)
    return PlannedStack(
        artifact["properties"]["stackName"], _region(artifact["environment"]), frozenset(queues), resources
    )


def _region(environment: str) -> str | None:
    """From `aws://ACCOUNT/REGION`."""
    region = environment.rsplit("/", 1)[-1]
    return None if region == "unknown-region" else region


class Deployment:
    """The stacks that two boto3 clients lead to. Raises what boto3 raises."""

    def __init__(self, cloudformation: Any, sqs: Any) -> None:
        self._cloudformation = cloudformation
        self._sqs = sqs

    @classmethod
    def of(cls, planned: Collection[PlannedStack]) -> Deployment:
        """Return the target of `planned` by the credentials in the environment, which has one region."""
        session = session_in(next((each.region for each in planned), None))
        return cls(session.client("cloudformation"), session.client("sqs"))

    def queue_urls(self, stack: str) -> Iterator[str]:
        """The queues of the stack called `stack`; none when it was never deployed."""
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        try:
            for page in pages:
                for resource in page["StackResourceSummaries"]:
                    if resource["ResourceType"] == _QUEUE and resource["ResourceStatus"] not in _GONE:
                        yield resource["PhysicalResourceId"]
        except ClientError as error:
            if not is_unknown_stack(error):
                raise

    def retired(self, stack: str) -> list[str]:
        """The participants that the deployed stack called `stack` says are retired."""
        try:
            (found,) = self._cloudformation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if not is_unknown_stack(error):
                raise
            return []
        outputs = {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}
        return str(outputs.get(RETIRED_OUTPUT, "")).split(",")

    def messages(self, queue_url: str) -> int:
        """Return the approximate number of messages in the queue, also those in flight; 0 when it is gone."""
        try:
            attributes = self._sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=list(_COUNTS))
        except self._sqs.exceptions.QueueDoesNotExist:
            return 0
        return sum(int(attributes["Attributes"].get(each, 0)) for each in _COUNTS)


def is_unknown_stack(error: ClientError) -> bool:
    """Return whether CloudFormation does not know the stack; it has no code of its own for that."""
    return "does not exist" in str(error)
