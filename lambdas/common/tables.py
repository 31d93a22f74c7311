"""Tables in DynamoDB: interest and subscriptions, with foreign items in the log, and conditional writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.contract import subscription_table
from eventplane.contract.publication import Item
from eventplane.interest import table as interest_table
from lambdas.common.aws import error_code
from lambdas.common.log import logger

_CONFLICT: Final = "ConditionalCheckFailedException"


class InterestTable(interest_table.InterestTable):
    """`table` through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        super().__init__(client, table, _log_foreign_announcement)


class SubscriptionTable(subscription_table.SubscriptionTable):
    """`table` through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        super().__init__(client, table, _log_foreign_subscription)


def is_done(operation: Callable[..., object], request: dict[str, Any]) -> bool:
    """Do `operation` of a boto3 client; return False if its condition does not hold.

    Raises botocore's errors.
    """
    try:
        operation(**request)
    except ClientError as error:
        if error_code(error) == _CONFLICT:
            return False
        raise
    return True


def _log_foreign_announcement(item: Item, why: Exception) -> None:
    logger.warning("an item is no announcement", item=str(item)[:200], error=str(why)[:500])


def _log_foreign_subscription(item: Item) -> None:
    logger.warning("an item is no subscription", item=str(item)[:200])
