"""The table of subscriptions: the routes that participants added themselves."""

from __future__ import annotations

from typing import Any

from eventplane.contract.subscription import Subscription, read_subscription
from lambdas.common.log import logger


class SubscriptionTable:
    """Reads `table` through a boto3 DynamoDB client. What it refuses is raised as botocore raises it."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def all(self) -> frozenset[Subscription]:
        """Every subscription; an item that is none is logged and left out."""
        found = set()
        # Consistent, so that "in force within the interval" is true.
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    found.add(read_subscription(item))
                except (LookupError, TypeError):
                    logger.warning("an item is no subscription", item=str(item)[:200])
        return frozenset(found)
