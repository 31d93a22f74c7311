"""The fleet's registry: a table with one item for each device that was ever made."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.fleet_registry import KEY, TABLE
from stacks.config import Environment
from stacks.constructs.service_role import allow


class FleetRegistry(Construct):
    """Paid by request: a fleet asks a few times a year and device."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=environment.resource_name(TABLE),
            partition_key=dynamodb.Attribute(name=KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=environment.keeps_data,
            removal_policy=environment.removal_policy,
        )


def allow_fleet(scope: Construct, *, environment: Environment, actions: Sequence[str]) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table."""
    arn = Stack.of(scope).format_arn(
        service="dynamodb", resource="table", resource_name=environment.resource_name(TABLE)
    )
    return allow(actions, [arn])


def allow_registry(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role that may read and change the records of single devices."""
    return allow_fleet(scope, environment=environment, actions=["dynamodb:GetItem", "dynamodb:PutItem"])
