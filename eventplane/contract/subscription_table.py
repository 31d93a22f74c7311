"""The table of subscriptions: its items, and the one way to read and to change them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from eventplane.contract.publication import Item
from eventplane.contract.subscription import MAX_OWN, Subscription, age

PARTITION: Final = "participant"
SORT: Final = "name"
DOCUMENT: Final = "document"

SUBSCRIPTIONS_TABLE: Final = "subscriptions"
"""The name of an environment's table, before `resource_name`."""


def subscription_key(participant: str, name: str) -> Item:
    """Return the key of an item."""
    return {PARTITION: {"S": participant}, SORT: {"S": name}}


def subscription_item(subscription: Subscription) -> Item:
    """Return the item of a subscription."""
    return {
        **subscription_key(subscription.participant, subscription.name),
        "filter": {"S": subscription.filter},
        "created_at": {"S": subscription.created_at},
        **({DOCUMENT: {"S": subscription.document}} if subscription.document else {}),
    }


def read_subscription(item: Item) -> Subscription:
    """Return the subscription in `item`. Raises KeyError or TypeError for another item."""
    participant, name, filter, created_at = (
        item[each]["S"] for each in (PARTITION, SORT, "filter", "created_at")
    )
    return Subscription(participant, name, filter, created_at, item.get(DOCUMENT, {}).get("S", ""))


class SubscriptionTable:
    """`table` through a boto3 DynamoDB client, whose errors are raised as they are.

    The client is the caller's, so that the core needs no SDK. An item that cannot be read goes to
    `on_foreign`.
    """

    def __init__(self, client: Any, table: str, on_foreign: Callable[[Item], None] = lambda _: None) -> None:
        self._client = client
        self._table = table
        self._on_foreign = on_foreign

    def all(self) -> frozenset[Subscription]:
        """Return every subscription; of a participant with too many, the oldest `MAX_OWN` and one more.

        `with_subscriptions` refuses that one, so that the refusal is reported.
        """
        found: defaultdict[str, list[Subscription]] = defaultdict(list)
        for each in self._read("scan"):
            own = found[each.participant]
            own.append(each)
            if len(own) > 2 * MAX_OWN:
                own[:] = _oldest(own)
        return frozenset(each for own in found.values() for each in _oldest(own))

    def of(self, participant: str) -> list[Subscription]:
        """Return the subscriptions of `participant`, by name."""
        found = self._read(
            "query",
            KeyConditionExpression="#p = :p",
            ExpressionAttributeNames={"#p": PARTITION},
            ExpressionAttributeValues={":p": {"S": participant}},
        )
        return list(found)

    def get(self, participant: str, name: str) -> Subscription | None:
        """Return the subscription `name` of `participant`; None if there is none."""
        key = subscription_key(participant, name)
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        return next(self._subscriptions([answer["Item"]]), None) if "Item" in answer else None

    def add(self, subscription: Subscription) -> bool:
        """Write `subscription` unless its name is taken; return whether it was written."""
        return self._write(
            "put_item",
            Item=subscription_item(subscription),
            ConditionExpression="attribute_not_exists(#p)",
            ExpressionAttributeNames={"#p": PARTITION},
        )

    def replace(self, before: Subscription, after: Subscription) -> bool:
        """Write `after` if the item is still `before`; return whether it was written."""
        return self._write("put_item", Item=subscription_item(after), **_unchanged(before))

    def remove(self, subscription: Subscription) -> bool:
        """Delete `subscription` if its item is unchanged; return whether it was deleted."""
        key = subscription_key(subscription.participant, subscription.name)
        return self._write("delete_item", Key=key, **_unchanged(subscription))

    def _write(self, operation: str, **request: Any) -> bool:
        try:
            getattr(self._client, operation)(TableName=self._table, **request)
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _read(self, operation: str, **request: Any) -> Iterator[Subscription]:
        # Consistent, so that a subscription is in force within `IN_FORCE_S`.
        pages = self._client.get_paginator(operation).paginate(
            TableName=self._table, ConsistentRead=True, **request
        )
        for page in pages:
            yield from self._subscriptions(page["Items"])

    def _subscriptions(self, items: list[Item]) -> Iterator[Subscription]:
        for item in items:
            try:
                yield read_subscription(item)
            except Exception:  # noqa: BLE001 - whatever is wrong with one item, the others are read
                self._on_foreign(item)


def _oldest(own: list[Subscription]) -> list[Subscription]:
    return sorted(own, key=age)[: MAX_OWN + 1]


def _unchanged(subscription: Subscription) -> Item:
    """Return the condition that all of the item is as `subscription` was read from it."""
    names = {f"#{name}": name for name in (PARTITION, "filter", "created_at", DOCUMENT)}
    item = subscription_item(subscription)
    values = {f":{name}": item[name] for name in names.values() if name in item}
    terms = [
        f"#{name} = :{name}" if name in item else f"attribute_not_exists(#{name})" for name in names.values()
    ]
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
