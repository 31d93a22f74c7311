"""The plane's DynamoDB tables: paid by request, restorable to any second, kept where data is kept.

Other stacks than the one that owns a table find it by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import subscription_table
from eventplane.contract.publication import CONTRACTS_TABLE, KEY
from eventplane.downlink import table as desired
from eventplane.interest import table as interest_table
from stacks.constructs.permissions import allow, arn, find_key
from stacks.plane_stack import environment_of

FILTER: Final = "filter"
"""The table of the events that readers had. The client library calls it so as well, and its attributes
(eventplane_client/dynamodb_duplicates.py), which the stacks do not import."""


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def number(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.NUMBER)


def durable_table(
    scope: Construct, id: str, name: str, key: str, sort_key: str | None = None, expires: str | None = None
) -> dynamodb.Table:
    """Return a table with keys of text. Items go at their attribute `expires`, Unix seconds."""
    environment = environment_of(scope)
    encryption = dynamodb.TableEncryption.CUSTOMER_MANAGED if environment.customer_key else None
    return dynamodb.Table(
        scope,
        id,
        table_name=environment.resource_name(name),
        partition_key=_text(key),
        sort_key=_text(sort_key) if sort_key else None,
        time_to_live_attribute=expires,
        encryption=encryption,
        encryption_key=find_key(scope),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=environment.keeps_data,
        removal_policy=environment.removal_policy,
    )


def contracts_table(scope: Construct) -> dynamodb.Table:
    """A few items of some kilobytes, read once in a while by each router and written by people."""
    return durable_table(scope, "Table", CONTRACTS_TABLE, KEY)


def desired_table(scope: Construct) -> dynamodb.Table:
    """One item a device and key, or command, with indexes of what there is to do.

    Both indexes are sparse and have the keys only: an item that has nothing to wait for costs nothing there,
    and a body is never copied.
    """
    table = durable_table(scope, "Table", desired.TABLE, desired.PARTITION_KEY, desired.SORT_KEY)
    table.add_global_secondary_index(
        index_name=desired.INDEX,
        partition_key=number(desired.INDEX_KEY),
        sort_key=number(desired.INDEX_SORT_KEY),
        projection_type=dynamodb.ProjectionType.KEYS_ONLY,
    )
    table.add_local_secondary_index(
        index_name=desired.PENDING_INDEX,
        sort_key=number(desired.INDEX_SORT_KEY),
        projection_type=dynamodb.ProjectionType.KEYS_ONLY,
    )
    return table


def client_tables(scope: Construct) -> dict[str, dynamodb.Table]:
    """Return what the client library keeps in the cloud, by the id of each table.

    Items of the filter go by themselves; losing them means that events may come again. Announced interest
    goes by itself too; without it everything is forwarded.
    """
    subscriptions = subscription_table.PARTITION, subscription_table.SORT
    interest = interest_table.PARTITION, interest_table.SORT, interest_table.EXPIRES
    return {
        "Filter": durable_table(scope, "Filter", FILTER, "reader", "event", "expires"),
        "Subscriptions": durable_table(
            scope, "Subscriptions", subscription_table.SUBSCRIPTIONS_TABLE, *subscriptions
        ),
        "Interest": durable_table(scope, "Interest", interest_table.INTEREST_TABLE, *interest),
    }


def allow_table(scope: Construct, name: str, *actions: str, index: str | None = None) -> iam.PolicyStatement:
    """Return a statement that allows `actions` (`GetItem`) on the table called `name`, or on its `index`."""
    return allow([f"dynamodb:{each}" for each in actions], [_table_arn(scope, name, index)])


def allow_own_items(
    scope: Construct, name: str, actions: Sequence[str], partition: str
) -> iam.PolicyStatement:
    """Return a statement that allows `actions` on the items whose partition key is like `partition`."""
    return iam.PolicyStatement(
        actions=[f"dynamodb:{each}" for each in actions],
        resources=[_table_arn(scope, name)],
        conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [partition]}},
    )


def _table_arn(scope: Construct, name: str, index: str | None = None) -> str:
    table = f"table/{environment_of(scope).resource_name(name)}"
    return arn(scope, "dynamodb", f"{table}/index/{index}" if index else table)
