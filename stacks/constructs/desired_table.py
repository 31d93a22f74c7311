"""The table of what each device shall have and has, with an index of what there is to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.downlink.table import (
    INDEX,
    INDEX_KEY,
    INDEX_SORT_KEY,
    PARTITION_KEY,
    SORT_KEY,
    TABLE,
)
from stacks.config import Environment
from stacks.constructs.service_role import allow

PENDING_INDEX: Final = "pending"
"""The items of one device by when they are due: what a device that subscribes is waiting for."""


class DesiredTable(Construct):
    """One item a device and key, or command. Both indexes are sparse and have the keys only: an item that has
    nothing to wait for costs nothing there, and a body is never copied."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)

        def attribute(name: str, type: dynamodb.AttributeType) -> dynamodb.Attribute:
            return dynamodb.Attribute(name=name, type=type)

        text, number = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER
        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=environment.resource_name(TABLE),
            partition_key=attribute(PARTITION_KEY, text),
            sort_key=attribute(SORT_KEY, text),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=environment.removal_policy,
            deletion_protection=environment.keeps_data,
        )
        self.table.add_global_secondary_index(
            index_name=INDEX,
            partition_key=attribute(INDEX_KEY, number),
            sort_key=attribute(INDEX_SORT_KEY, number),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        self.table.add_local_secondary_index(
            index_name=PENDING_INDEX,
            sort_key=attribute(INDEX_SORT_KEY, number),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )


def allow_desired(
    scope: Construct, *, environment: Environment, actions: Sequence[str], index: str | None = None
) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table, or on its `index`."""
    name = environment.resource_name(TABLE)
    arn = Stack.of(scope).format_arn(
        service="dynamodb",
        resource="table",
        resource_name=f"{name}/index/{index}" if index else name,
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
    return allow(actions, [arn])
