"""What the client library keeps in the cloud: which events a reader had, and its own subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import subscription
from stacks.config import Environment
from stacks.constructs.service_role import allow

FILTER: Final = "filter"
"""What the filters' table is called, before `resource_name`; the client library calls it so as well."""

# The client library's names (eventplane_client/dynamodb_table.py), which the stacks do not import.
_FILTER_KEYS: Final = ("reader", "event")
_FILTER_EXPIRES: Final = "expires"


class ClientTables(Construct):
    """Both tables. The filters' items go by themselves; losing them means that events may come again."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.filter = _table(self, "Filter", environment, FILTER, _FILTER_KEYS, expires=_FILTER_EXPIRES)
        keys = (subscription.PARTITION, subscription.SORT)
        self.subscriptions = _table(self, "Subscriptions", environment, subscription.TABLE, keys)


def allow_subscriptions(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role in `scope` that may read every subscription."""
    return allow(["dynamodb:Scan"], [table_arn(scope, environment, subscription.TABLE)])


def allow_own_items(
    scope: Construct,
    *,
    environment: Environment,
    table: str,
    actions: Sequence[str],
    partitions: Sequence[str],
) -> iam.PolicyStatement:
    """A statement that allows `actions` on the items of `table` whose partition key is like one of these."""
    return iam.PolicyStatement(
        actions=list(actions),
        resources=[table_arn(scope, environment, table)],
        conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(partitions)}},
    )


def table_arn(scope: Construct, environment: Environment, table: str) -> str:
    """The ARN of a table of `environment`."""
    name = environment.resource_name(table)
    return Stack.of(scope).format_arn(service="dynamodb", resource="table", resource_name=name)


def _table(
    scope: Construct,
    id: str,
    environment: Environment,
    name: str,
    keys: tuple[str, str],
    *,
    expires: str | None = None,
) -> dynamodb.Table:
    partition, sort = (dynamodb.Attribute(name=each, type=dynamodb.AttributeType.STRING) for each in keys)
    return dynamodb.Table(
        scope,
        id,
        table_name=environment.resource_name(name),
        partition_key=partition,
        sort_key=sort,
        time_to_live_attribute=expires,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        encryption=dynamodb.TableEncryption.DEFAULT,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=environment.keeps_data,
        removal_policy=environment.removal_policy,
    )
