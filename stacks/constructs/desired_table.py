"""The table of what each device shall have and has, with an index of what there is to do."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.downlink.table import (
    INDEX,
    INDEX_KEY,
    INDEX_SORT_KEY,
    PARTITION_KEY,
    PENDING_INDEX,
    SORT_KEY,
    TABLE,
)
from stacks.constructs.durable_table import allow_table, durable_table, number, text
from stacks.environment import Environment


class DesiredTable(Construct):
    """One item a device and key, or command. Both indexes are sparse and have the keys only: an item that has
    nothing to wait for costs nothing there, and a body is never copied."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = durable_table(
            self,
            "Table",
            environment=environment,
            name=TABLE,
            key=text(PARTITION_KEY),
            sort_key=text(SORT_KEY),
        )
        self.table.add_global_secondary_index(
            index_name=INDEX,
            partition_key=number(INDEX_KEY),
            sort_key=number(INDEX_SORT_KEY),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        self.table.add_local_secondary_index(
            index_name=PENDING_INDEX,
            sort_key=number(INDEX_SORT_KEY),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )


def allow_desired(
    scope: Construct, *, environment: Environment, actions: Sequence[str], index: str | None = None
) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table, or on its `index`."""
    return allow_table(scope, environment=environment, name=TABLE, actions=actions, index=index)
