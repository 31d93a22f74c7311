"""Log groups: kept for as long as the environment says, with the customer's key where there is one."""

from __future__ import annotations

from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.constructs.permissions import find_key
from stacks.plane_stack import environment_of


def log_group(scope: Construct, id: str, name: str) -> logs.LogGroup:
    """Make the log group called `name`."""
    environment = environment_of(scope)
    return logs.LogGroup(
        scope,
        id,
        log_group_name=name,
        encryption_key=find_key(scope),
        retention=environment.retention_of_logs,
        removal_policy=environment.removal_policy,
    )
