"""The customer's own KMS key, where an environment has one."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.constructs.service_role import allow
from stacks.environment import Environment


def find_key(scope: Construct, environment: Environment) -> kms.IKey | None:
    """The key, for something in `scope` that shall be encrypted with it; None where there is none."""
    if environment.customer_key is None:
        return None
    return kms.Key.from_key_arn(scope, "Key", environment.customer_key)


def needs_key(statements: Sequence[iam.PolicyStatement]) -> bool:
    """Whether `statements` lead to queues or the archive; the key encrypts no table and no secret."""
    return any(action.startswith(("sqs:", "s3:")) for each in statements for action in each.actions)


def allow_key(environment: Environment) -> list[iam.PolicyStatement]:
    """What a role needs besides, to write and read what is encrypted with the key."""
    if environment.customer_key is None:
        return []
    return [allow(["kms:Decrypt", "kms:GenerateDataKey"], [environment.customer_key])]
