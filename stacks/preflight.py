"""`python -m stacks.preflight ASSEMBLY ENV [--accept-drift] [--ask]`: refuses what would fail or harm.

The synthesised ASSEMBLY (`cdk.out`) is compared with the region and the account of the current credentials:
another plane there, resources that the region lacks, queues that would go, quotas, who confirmed to be paged,
and what was changed by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from eventplane.resource_names import PROJECT, OtherPlaneError
from stacks.config import environment
from stacks.deployment import Deployment, PlannedStack, confirm, is_unknown_stack, planned_stacks, session_in
from stacks.drift import Drift, find_drift
from stacks.plane_stack import PLANE_TAG
from stacks.quotas import Quotas, Shortage, organisation_findings, planned_concurrency
from stacks.rules import check, templates

_BOXES = ("-inbox", "-outbox", "-replies")


class RemovalError(EventPlaneError):
    """A deployment would delete queues that may hold events. `problems` are one for each of them."""

    def __init__(self, problems: Collection[str]) -> None:
        lines = "\n".join(f"  {each}" for each in problems)
        super().__init__(f"nothing was deployed, because {len(problems)} queue(s) would go:\n{lines}")
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LeavingQueue:
    """A deployed queue that is no longer planned. `name` without project and environment; `messages` in it.

    `is_written`: a router may still write to it, as its participant was never retired.
    """

    name: str
    messages: int
    is_written: bool


def problems(leaving: Collection[LeavingQueue]) -> Iterator[str]:
    """Why each of `leaving` may not be deleted, with the remedy."""
    for queue in leaving:
        if queue.is_written:
            yield (
                f"{queue.name}: routers may still write to it; put back what left the contract, with "
                "`retired: true` on its participant, deploy, and remove it once its queues are empty"
            )
        elif queue.messages:
            yield f"{queue.name}: {queue.messages} message(s) are left; let them be read, or move them, first"


def leaving_queues(deployment: Deployment, planned: Collection[PlannedStack]) -> Iterator[LeavingQueue]:
    """The deployed queues that `planned` no longer has."""
    kept = {queue for stack in planned for queue in stack.queues}
    retired = {name for stack in planned for name in deployment.retired(stack.name)}
    for stack in planned:
        # Project and environment, as in the stack's own name: eventplane-dev-messaging.
        prefix = "-".join(stack.name.split("-")[:2]) + "-"
        for url in deployment.queue_urls(stack.name):
            full_name = url.rsplit("/", 1)[-1]
            if full_name not in kept:
                name = full_name.removeprefix(prefix)
                participant = _participant(name)
                yield LeavingQueue(
                    name, deployment.messages(url), participant is not None and participant not in retired
                )


def _participant(queue: str) -> str | None:
    """Whose box a queue is, None for the plane's own queues."""
    name = queue.removesuffix(".fifo").removesuffix("-dlq")
    return next((name.removesuffix(box) for box in _BOXES if name.endswith(box)), None)


def check_removals(deployment: Deployment, planned: Collection[PlannedStack]) -> None:
    """Raises `RemovalError` when deploying `planned` would delete a queue that may hold events."""
    if found := list(problems(list(leaving_queues(deployment, planned)))):
        raise RemovalError(found)


PROTECTED: Final = "AWS::DynamoDB::Table"
"""The type of resources that are protected from deletion and that are removed here all the same."""

_KEYS: Final = "AWS::SecretsManager::Secret"
_NEVER_IN_SERVICE: Final = frozenset({"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})


class LeftoverError(EventPlaneError):
    """The table `table` of a stack whose first deployment failed holds items."""

    table: str
    stack: str
    message = (
        "nothing was deployed: the first deployment of {stack} failed, and its table {table} holds items; "
        "export them, delete the table, and deploy again"
    )


def remove_leftovers(client: Callable[[str], Any], stacks: Iterable[str], say: Callable[[str], None]) -> None:
    """Delete those of `stacks` whose first deployment failed, with their empty tables.

    `client` gives boto3 clients by services' names. Raises `LeftoverError`, and botocore's errors.
    """
    cloudformation, dynamodb, secrets = map(client, ("cloudformation", "dynamodb", "secretsmanager"))
    for stack in failed_first(cloudformation, stacks):
        say(f"the first deployment of {stack} failed; it is deleted, and made anew")
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        made = [
            (each["ResourceType"], each["PhysicalResourceId"])
            for page in pages
            for each in page["StackResourceSummaries"]
            if each.get("PhysicalResourceId")
        ]
        tables = [name for type, name in made if type == PROTECTED]
        for table in tables:
            with suppress(dynamodb.exceptions.ResourceNotFoundException):
                if dynamodb.scan(TableName=table, Limit=1)["Items"]:
                    raise LeftoverError(table, stack)
        for table in tables:
            with suppress(dynamodb.exceptions.ResourceNotFoundException):
                dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)
                dynamodb.get_waiter("table_exists").wait(TableName=table)
                dynamodb.delete_table(TableName=table)
                dynamodb.get_waiter("table_not_exists").wait(TableName=table)
        for secret in (name for type, name in made if type == _KEYS):
            # One that is scheduled for deletion keeps its name for weeks.
            with suppress(secrets.exceptions.ResourceNotFoundException):
                secrets.delete_secret(SecretId=secret, ForceDeleteWithoutRecovery=True)
        cloudformation.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
        cloudformation.delete_stack(StackName=stack)
        cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack)


def failed_first(cloudformation: Any, stacks: Iterable[str]) -> list[str]:
    """Return those of `stacks` whose first deployment failed. Raises botocore's errors.

    CloudFormation detects no drift of them (AWS CloudFormation guide, "Detect drift").
    """
    return [each for each in stacks if _status(cloudformation, each) in _NEVER_IN_SERVICE]


def _status(cloudformation: Any, stack: str) -> str:
    try:
        (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if not is_unknown_stack(error):
            raise
        return ""
    return str(found["StackStatus"])


_SUBSCRIPTION: Final = "AWS::SNS::Subscription"


def pager_findings(planned: Collection[PlannedStack], sns: Any) -> Iterator[Shortage]:
    """Report the subscribers in `planned` that deployed topics do not notify, by a boto3 client of SNS.

    SNS notifies only confirmed subscribers, and drops an unconfirmed one after three days. Of a topic that is
    not deployed yet nothing is reported.
    """
    wanted: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for stack in planned:
        for each in stack.resources.values():
            if each["Type"] == _SUBSCRIPTION:
                asked = each["Properties"]
                topic = stack.resources[asked["TopicArn"]["Ref"]]["Properties"]["TopicName"]
                wanted[topic][asked["Endpoint"]] = asked["Protocol"]
    if not wanted:
        return
    try:
        for each in [*_listed(sns, "list_topics", "Topics")]:
            arn = each["TopicArn"]
            if subscribers := wanted.get(arn.rsplit(":", 1)[-1]):
                yield from _unconfirmed(sns, arn, subscribers)
    except (BotoCoreError, ClientError) as error:
        yield Shortage(
            f"subscribers of alarms: not read, because AWS answered: {error}; the credentials need "
            "sns:ListTopics and sns:ListSubscriptionsByTopic",
            refuses=False,
        )


def _unconfirmed(sns: Any, arn: str, wanted: dict[str, str]) -> Iterator[Shortage]:
    listed = _listed(sns, "list_subscriptions_by_topic", "Subscriptions", TopicArn=arn)
    found = {each["Endpoint"]: each["SubscriptionArn"] for each in listed}
    for endpoint, protocol in wanted.items():
        if not found.get(endpoint, "").startswith("arn:"):
            state = "has not confirmed" if endpoint in found else "is not subscribed"
            yield Shortage(
                f"{arn.rsplit(':', 1)[-1]}: {endpoint} {state} and is told of no alarm; unless this "
                f"deployment adds it, ask again: aws sns subscribe --topic-arn {arn} --protocol {protocol} "
                f"--notification-endpoint {endpoint}, and confirm what comes",
                refuses=False,
            )


def _listed(sns: Any, operation: str, member: str, **asked: str) -> Iterator[Any]:
    for page in sns.get_paginator(operation).paginate(**asked):
        yield from page[member]


class QuotaError(EventPlaneError):
    """The account's quotas do not suffice. `problems` are one for each of them."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("\n  ".join(["nothing was deployed, because quotas do not suffice:", *problems]))
        self.problems = tuple(problems)


class DriftError(EventPlaneError):
    """Deployed resources were changed by hand. `drifts` are one for each of them."""

    def __init__(self, drifts: Collection[Drift]) -> None:
        lines = [
            "nothing was deployed, because resources are not as they were deployed:",
            *map(str, drifts),
            "undo each change, or write it into the code; or deploy with ACCEPT_DRIFT=1: a deployment sets "
            "back only what it changes itself",
        ]
        super().__init__("\n  ".join(lines))
        self.drifts = tuple(drifts)


def check_quotas(findings: Iterable[Shortage]) -> list[str]:
    """Return the warnings of `findings`. Raises `QuotaError` where one of them refuses."""
    found = list(findings)
    if refused := [each.text for each in found if each.refuses]:
        raise QuotaError(refused)
    return [each.text for each in found]


def quota_findings(account: Quotas, planned: Collection[PlannedStack], devices: int) -> list[Shortage]:
    """Compare what `planned` and so many devices need with what `account` has."""
    return [
        *account.concurrency_findings(planned_concurrency(planned)),
        *account.device_findings(devices),
    ]


def check_owner(cloudformation: Any, environment: str) -> None:
    """Raises `OtherPlaneError` where the plane of another environment is deployed, and what boto3 raises."""
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            tags = {each["Key"]: each["Value"] for each in stack.get("Tags", ())}
            owner = tags.get("environment", environment)
            if PLANE_TAG in tags and tags.get("project") == PROJECT and owner != environment:
                raise OtherPlaneError(owner, environment)


def drift(cloudformation: Any, stacks: Collection[str]) -> Iterator[Drift]:
    """Find the drift of `stacks`, without those that a first deployment has left. Raises as `find_drift`."""
    failed = failed_first(cloudformation, stacks)
    deployed = [each for each in stacks if each not in failed]
    return find_drift(cloudformation, deployed, time.sleep, _warn)


def check_drift(drifts: Iterable[Drift]) -> None:
    """Raises `DriftError` if there is drift."""
    if found := list(drifts):
        raise DriftError(found)


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)  # noqa: T201 - a command's output


def main(argv: list[str]) -> None:
    """Raises `EventPlaneError` with what is wrong, and what boto3 raises without an answer about queues."""
    parser = argparse.ArgumentParser(prog="python -m stacks.preflight", description=__doc__)
    parser.add_argument("assembly", type=Path)
    parser.add_argument("environment")
    parser.add_argument("--accept-drift", action="store_true")
    parser.add_argument("--ask", action="store_true", help="before the first stack, and remove leftovers")
    parser.add_argument("--yes", metavar="ENV", help="the answer: the environment's name")
    arguments = parser.parse_args(argv)
    chosen = environment(arguments.environment)
    session = session_in(chosen.region)
    # Synthesis may not have known the region.
    for template in templates(arguments.assembly):
        check(template, session.region_name)
    planned = planned_stacks(arguments.assembly)
    check_owner(session.client("cloudformation"), chosen.name)
    # Without an answer nothing is deployed: what cannot be seen may hold events.
    check_removals(Deployment.of(planned), planned)
    quotas = Quotas(session.region_name, session.client("lambda"), session.client("service-quotas"))
    findings = quota_findings(quotas, planned, chosen.devices)
    findings += [
        *organisation_findings(planned, session.client),
        *pager_findings(planned, session.client("sns")),
    ]
    for warning in check_quotas(findings):
        _warn(warning)
    names = [each.name for each in planned]
    if not arguments.accept_drift:
        check_drift(drift(session.client("cloudformation"), names))
    if arguments.ask:
        account = chosen.account or "the account of the credentials"
        question = f"{len(planned)} stacks go to {account}, {session.region_name}, with their permissions."
        confirm(question, chosen.name, arguments.yes)
        remove_leftovers(session.client, names, _warn)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (EventPlaneError, BotoCoreError, ClientError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}; write the assembly by `make synth`")
