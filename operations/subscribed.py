"""The contract as the routers have it: with the routes that participants added themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from eventplane.contract import Contract
from eventplane.contract.subscription import Subscription, read_subscription, with_subscriptions


def subscribed(contract: Contract, dynamodb: Any, table: str) -> Contract:
    """`contract` with what `table` has of subscriptions; what cannot be in it is left out, as by the routers.

    An environment of the time before subscriptions has no table, and none of them.
    """
    try:
        return with_subscriptions(contract, _all(dynamodb, table))[0]
    except dynamodb.exceptions.ResourceNotFoundException:
        return contract


def _all(dynamodb: Any, table: str) -> list[Subscription]:
    found = []
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        for item in page["Items"]:
            with suppress(LookupError, TypeError):
                found.append(read_subscription(item))
    return found
