"""The fleet's registry: a table with one item for each device that was ever made."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.fleet_registry import KEY, TABLE
from stacks.constructs.durable_table import allow_table, durable_table, text
from stacks.environment import Environment


class FleetRegistry(Construct):
    """Paid by request: a fleet asks a few times a year and device."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = durable_table(self, "Table", environment=environment, name=TABLE, key=text(KEY))


def allow_fleet(scope: Construct, *, environment: Environment, actions: Sequence[str]) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table."""
    return allow_table(scope, environment=environment, name=TABLE, actions=actions)


def allow_registry(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role that may read and change the records of single devices."""
    return allow_fleet(scope, environment=environment, actions=["dynamodb:GetItem", "dynamodb:PutItem"])
