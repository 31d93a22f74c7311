"""The one way to the table of subscriptions: what is written is read, and nothing is overwritten unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract.subscription import MAX_OWN, Subscription, new_subscription
from eventplane.contract.subscription_table import PARTITION, SORT, SubscriptionTable
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws

NOW = "2026-01-01T00:00:00.000Z"


def subscription(name: str = "news", participant: str = "carers", document: str = "{}") -> Subscription:
    return new_subscription(participant, name, {"exact": {"type": "t"}}, NOW, document)


@pytest.fixture
def dynamodb(fake_aws: FakeAws) -> Any:
    client = fake_aws.dynamodb
    create_table(client, "subscriptions", PARTITION, SORT)
    return client


def test_an_added_subscription_is_found_alone_and_among_others(dynamodb: Any) -> None:
    table = SubscriptionTable(dynamodb, "subscriptions")
    one, other = subscription(), subscription(participant="family-app", document="")
    assert table.add(one)
    assert table.add(other)
    assert not table.add(replace(one, document=""))
    assert table.all() == {one, other}
    assert table.of("carers") == [one]
    assert table.get("carers", "news") == one
    assert table.get("carers", "other") is None


@pytest.mark.parametrize("document", ["", "{}"])
def test_one_of_two_concurrent_writers_wins(dynamodb: Any, document: str) -> None:
    table = SubscriptionTable(dynamodb, "subscriptions")
    read = subscription(document=document)
    table.add(read)
    first, second = (replace(read, document=f'{{"sink":"{each}"}}') for each in "ab")
    assert table.replace(read, first)
    assert not table.replace(read, second)
    assert not table.remove(read)
    assert table.of("carers") == [first]
    assert table.remove(first)
    assert not table.remove(first)
    assert table.all() == frozenset()


def test_a_malformed_item_is_reported_and_skipped(dynamodb: Any) -> None:
    foreign: list[Any] = []
    table = SubscriptionTable(dynamodb, "subscriptions", foreign.append)
    table.add(subscription())
    dynamodb.put_item(TableName="subscriptions", Item={PARTITION: {"S": "carers"}, SORT: {"S": "odd"}})
    assert table.all() == {subscription()}
    assert table.get("carers", "odd") is None
    assert [each[SORT]["S"] for each in foreign] == ["odd", "odd"]


def test_of_too_many_subscriptions_the_oldest_are_read_and_one_more(dynamodb: Any) -> None:
    table = SubscriptionTable(dynamodb, "subscriptions")
    many = [replace(subscription(f"n{at}"), created_at=f"2026-{999 - at}") for at in range(3 * MAX_OWN)]
    other = subscription(participant="family-app")
    for each in (*many, other):
        table.add(each)
    assert table.all() == {*many[-MAX_OWN - 1 :], other}
