"""Subscriptions of a cloud service: items of its own in the plane's table, which the routers read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventplane.contract import ContractError
from eventplane.contract.subscription import new_subscription
from eventplane.subscription_table import SubscriptionTable
from eventplane.timestamps import timestamp
from eventplane_client.aws import unavailable
from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError, SubscriptionError


class DynamoDbSubscriptions:
    """Those of `participant` in `table`; in force once every router has looked (`contract_refresh_s`)."""

    def __init__(self, dynamodb: Any, table: str, participant: str) -> None:
        self._table = SubscriptionTable(dynamodb, table)
        self._participant = participant

    def subscribe(self, name: str, filter: object) -> None:
        now = timestamp(datetime.now(UTC))
        try:
            subscription = new_subscription(self._participant, name, filter, now)
        except ContractError as error:
            raise SubscriptionError(name, error.problems) from error
        with unavailable(self._participant):
            if self._table.add(subscription):
                return
            known = self._table.get(self._participant, name)
        if known is None or known.filter != subscription.filter:
            raise AlreadySubscribedError(self._participant, name)

    def unsubscribe(self, name: str) -> None:
        with unavailable(self._participant):
            known = self._table.get(self._participant, name)
            if known is None or not self._table.remove(known):
                raise NotSubscribedError(self._participant, name)
