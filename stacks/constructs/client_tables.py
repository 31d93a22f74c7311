"""What the client library keeps in the cloud: which events a reader had, its own routes, its interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import interest, subscription
from stacks.constructs.durable_table import allow_table, durable_table, table_arn, text
from stacks.environment import Environment

FILTER: Final = "filter"
"""What the filters' table is called, before `resource_name`; the client library calls it so as well."""

# The client library's names (eventplane_client/dynamodb_table.py), which the stacks do not import.
_FILTER_KEYS: Final = ("reader", "event")
_FILTER_EXPIRES: Final = "expires"


class ClientTables(Construct):
    """The filters' items go by themselves; losing them means that events may come again.

    Announcements go by themselves too; without them everything is forwarded.
    """

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        reader, event = map(text, _FILTER_KEYS)
        self.filter = durable_table(
            self,
            "Filter",
            environment=environment,
            name=FILTER,
            key=reader,
            sort_key=event,
            expires=_FILTER_EXPIRES,
        )
        self.subscriptions = durable_table(
            self,
            "Subscriptions",
            environment=environment,
            name=subscription.TABLE,
            key=text(subscription.PARTITION),
            sort_key=text(subscription.SORT),
        )
        self.interest = durable_table(
            self,
            "Interest",
            environment=environment,
            name=interest.TABLE,
            key=text(interest.PARTITION),
            sort_key=text(interest.SORT),
            expires=interest.EXPIRES,
        )


def allow_subscriptions(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role in `scope` that may read every subscription."""
    return allow_table(scope, environment=environment, name=subscription.TABLE, actions=["dynamodb:Scan"])


def allow_interest(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role in `scope` that may read every announcement."""
    return allow_table(scope, environment=environment, name=interest.TABLE, actions=["dynamodb:Scan"])


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
