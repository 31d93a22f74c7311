"""The table of subscriptions as functions read it: what is none there is said in their log."""

from __future__ import annotations

from typing import Any

from eventplane import subscription_table
from eventplane.contract.subscription import Item
from lambdas.common.log import logger


class SubscriptionTable(subscription_table.SubscriptionTable):
    """`table` through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        super().__init__(client, table, _log_foreign)


def _log_foreign(item: Item) -> None:
    logger.warning("an item is no subscription", item=str(item)[:200])
