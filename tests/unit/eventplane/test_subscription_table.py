"""The one way to the table of subscriptions: what is written is read, and nothing is overwritten unseen."""

from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract.subscription import MAX_OWN, Subscription, new_subscription
from eventplane.contract.subscription_table import SORT, SUBSCRIPTION, SubscriptionTable
from tests.fakes.tables import MemoryTables

NOW = "2026-01-01T00:00:00.000Z"


def subscription(name: str = "news", participant: str = "carers", document: str = "{}") -> Subscription:
    return new_subscription(participant, name, {"exact": {"type": "t"}}, NOW, document)


def test_an_added_subscription_is_found_alone_and_among_others() -> None:
    table = SubscriptionTable(MemoryTables(), "subscriptions")
    one, other = subscription(), subscription(participant="family-app", document="")
    assert table.write(one)
    assert table.write(other)
    assert not table.write(replace(one, document=""))
    assert table.all() == {one, other}
    assert table.of("carers") == [one]
    assert table.get("carers", "news") == one
    assert table.get("carers", "other") is None


@pytest.mark.parametrize("document", ["", "{}"])
def test_one_of_two_concurrent_writers_wins(document: str) -> None:
    table = SubscriptionTable(MemoryTables(), "subscriptions")
    read = subscription(document=document)
    stored = table.write(read)
    assert stored is not None
    first, second = (replace(stored, document=f'{{"sink":"{each}"}}') for each in "ab")
    after = table.write(first)
    assert after is not None
    assert not table.write(second)
    assert not table.remove(stored)
    assert table.of("carers") == [first]
    assert table.remove(after)
    assert table.all() == frozenset()


def test_a_malformed_item_is_reported_and_skipped() -> None:
    foreign: list[Any] = []
    tables = MemoryTables()
    table = SubscriptionTable(tables, "subscriptions", lambda item, _: foreign.append(item))
    table.write(subscription())
    odd = SUBSCRIPTION.key_of("carers", "odd")
    tables.put("subscriptions", odd, odd, None)
    assert table.all() == {subscription()}
    assert table.get("carers", "odd") is None
    assert [each[SORT]["S"] for each in foreign] == ["odd", "odd"]


def test_the_oldest_subscriptions_are_read() -> None:
    table = SubscriptionTable(MemoryTables(), "subscriptions")
    many = [replace(subscription(f"n{at}"), created_at=f"2026-{999 - at}") for at in range(3 * MAX_OWN)]
    other = subscription(participant="family-app")
    for each in (*many, other):
        table.write(each)
    assert table.all() == {*many[-MAX_OWN - 1 :], other}
