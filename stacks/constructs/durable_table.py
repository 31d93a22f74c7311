"""The plane's DynamoDB tables: paid by request, restorable to any second, kept where data is kept."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.constructs.service_role import allow
from stacks.environment import Environment


def text(name: str) -> dynamodb.Attribute:
    """A key of strings."""
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def number(name: str) -> dynamodb.Attribute:
    """A key of numbers."""
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.NUMBER)


def durable_table(
    scope: Construct,
    id: str,
    *,
    environment: Environment,
    name: str,
    key: dynamodb.Attribute,
    sort_key: dynamodb.Attribute | None = None,
    expires: str | None = None,
) -> dynamodb.Table:
    """A table called `name` in `environment`; items go at their attribute `expires`, Unix seconds."""
    return dynamodb.Table(
        scope,
        id,
        table_name=environment.resource_name(name),
        partition_key=key,
        sort_key=sort_key,
        time_to_live_attribute=expires,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=environment.keeps_data,
        removal_policy=environment.removal_policy,
    )


def allow_table(
    scope: Construct,
    *,
    environment: Environment,
    name: str,
    actions: Sequence[str],
    index: str | None = None,
) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the table, or on its `index`."""
    return allow(actions, [table_arn(scope, environment, name, index)])


def table_arn(scope: Construct, environment: Environment, name: str, index: str | None = None) -> str:
    """The ARN of the table called `name` in `environment`, or of its `index`."""
    table = environment.resource_name(name)
    return Stack.of(scope).format_arn(
        service="dynamodb",
        resource="table",
        resource_name=f"{table}/index/{index}" if index else table,
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
