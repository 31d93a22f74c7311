"""The table of interest as functions read it: what is none there is said in their log."""

from __future__ import annotations

from typing import Any

from eventplane import interest_table
from eventplane.contract.interest import Item
from lambdas.common.log import logger


class InterestTable(interest_table.InterestTable):
    """`table` through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        super().__init__(client, table, _log_foreign)


def _log_foreign(item: Item, why: Exception) -> None:
    logger.warning("an item is no announcement", item=str(item)[:200], error=str(why)[:500])
