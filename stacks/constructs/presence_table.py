"""The table that says how each device is, with an index of those that have to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.config import Environment
from stacks.constructs.service_role import allow

NAME: Final = "presence"

DUE_INDEX: Final = "due"


class PresenceTable(Construct):
    """One item a device. The index has the keys only: a write that leaves them alone costs nothing there."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)

        def number(name: str) -> dynamodb.Attribute:
            return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.NUMBER)

        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=environment.resource_name(NAME),
            partition_key=dynamodb.Attribute(name="device", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=environment.removal_policy,
            deletion_protection=environment.keeps_data,
        )
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
    name = environment.resource_name(NAME)
    arn = Stack.of(scope).format_arn(
        service="dynamodb",
        resource="table",
        resource_name=f"{name}/index/{index}" if index else name,
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
    return allow(actions, [arn])
