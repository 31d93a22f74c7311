"""The table that says how each device is, with an index of those that have to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.presence import TABLE
from stacks.constructs.durable_table import allow_table, durable_table, number, text
from stacks.environment import Environment

NAME: Final = TABLE

DUE_INDEX: Final = "due"


class PresenceTable(Construct):
    """One item a device. The index has the keys only: a write that leaves them alone costs nothing there."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = durable_table(self, "Table", environment=environment, name=NAME, key=text("device"))
        self.table.add_global_secondary_index(
            index_name=DUE_INDEX,
            partition_key=number("bucket"),
            sort_key=number("due_ms"),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )


def allow_presence(
    scope: Construct, *, environment: Environment, actions: Sequence[str], index: str | None = None
) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table, or on its `index`."""
    return allow_table(scope, environment=environment, name=NAME, actions=actions, index=index)
