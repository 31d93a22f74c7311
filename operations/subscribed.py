"""The contract as the routers have it: with the routes that participants added themselves."""

from __future__ import annotations

from typing import Any

from eventplane.contract import Contract
from eventplane.contract.subscription import with_subscriptions
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane_aws.tables import DynamoDbTables
from operations import system


def subscribed(contract: Contract, dynamodb: Any, table: str) -> Contract:
    """`contract` with what `table` has of subscriptions; what cannot be in it is left out, as by the routers.

    An environment of the time before subscriptions has no table, and none of them.
    """
    try:
        return with_subscriptions(
            contract, SubscriptionTable(DynamoDbTables(dynamodb, system.random_bytes), table).all()
        )[0]
    except dynamodb.exceptions.ResourceNotFoundException:
        return contract
