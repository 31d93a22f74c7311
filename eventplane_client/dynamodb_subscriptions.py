"""Subscriptions of a cloud service: items of its own in the plane's table, which the routers read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.contract import ContractError
from eventplane.contract.subscription import new_subscription, subscription_item, subscription_key
from eventplane_client.aws import code_of, unavailable
from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError, SubscriptionError

_REFUSED: Final = "ConditionalCheckFailedException"


class DynamoDbSubscriptions:
    """Those of `participant` in `table`; in force once every router has looked (`contract_refresh_s`)."""

    def __init__(self, dynamodb: Any, table: str, participant: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._participant = participant

    def subscribe(self, name: str, filter: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            subscription = new_subscription(self._participant, name, filter, now)
        except ContractError as error:
            raise SubscriptionError(name, error.problems) from error
        with unavailable(self._participant):
            try:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item=subscription_item(subscription),
                    ConditionExpression="attribute_not_exists(participant)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ClientError as error:
                if code_of(error) != _REFUSED:
                    raise
                if error.response.get("Item", {}).get("filter", {}).get("S") != subscription.filter:
                    raise AlreadySubscribedError(self._participant, name) from error

    def unsubscribe(self, name: str) -> None:
        with unavailable(self._participant):
            gone = self._dynamodb.delete_item(
                TableName=self._table, Key=subscription_key(self._participant, name), ReturnValues="ALL_OLD"
            )
        if "Attributes" not in gone:
            raise NotSubscribedError(self._participant, name)
