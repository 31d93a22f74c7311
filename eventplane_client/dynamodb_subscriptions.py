"""Subscriptions of a cloud service: items of its own in the plane's table, which the routers read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventplane.contract import ContractError
from eventplane.contract.subscription import Subscription, new_subscription
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.values import timestamp
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.aws import unavailable
from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError, SubscriptionError
from eventplane_client.subscription import in_force_from
from eventplane_client.system import SYSTEM, System


class DynamoDbSubscriptions:
    """Those of `participant` in `table`; in force `IN_FORCE_S` after they were written at the latest."""

    def __init__(self, dynamodb: Any, table: str, participant: str, system: System = SYSTEM) -> None:
        self._table = SubscriptionTable(DynamoDbTables(dynamodb, system.random_bytes), table)
        self._participant = participant
        self._system = system

    def subscribe(self, name: str, filter: object) -> datetime:
        now = timestamp(self._system.now())
        try:
            subscription = new_subscription(self._participant, name, filter, now)
        except ContractError as error:
            raise SubscriptionError(name, error.problems) from error
        with unavailable(self._participant):
            if self._table.write(subscription):
                return in_force_from(self._system.now())
            known = self._table.get(self._participant, name)
        if known is None or known.filter != subscription.filter:
            raise AlreadySubscribedError(self._participant, name)
        return in_force_from(self._system.now(), _time_of(known))

    def unsubscribe(self, name: str) -> None:
        with unavailable(self._participant):
            known = self._table.get(self._participant, name)
            if known is None or not self._table.remove(known):
                raise NotSubscribedError(self._participant, name)


def _time_of(subscription: Subscription) -> datetime | None:
    """When it was created; None where its text is none, which whoever has rights on the table can write."""
    try:
        return datetime.fromisoformat(subscription.created_at).astimezone(UTC)
    except ValueError:
        return None
