"""Remove what a first deployment that failed has left, so that the next one can begin.

CloudFormation rolls it back but for protected tables, whose names would block the next one, and deletes no
protected stack. A stack that was ever in service is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.errors import EventPlaneError
from stacks.deployment import is_unknown_stack

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
