"""A participant's own routes in the plane's table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from contract import load_contract
from eventplane.contract.subscription import IN_FORCE_S, new_subscription, with_subscriptions
from eventplane.contract.subscription_table import PARTITION, SORT, read_subscription, subscription_item
from eventplane_client.dynamodb_subscriptions import DynamoDbSubscriptions
from eventplane_client.errors import (
    AlreadySubscribedError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
)
from tests.dynamodb import create_table

IN_FORCE = timedelta(seconds=IN_FORCE_S)
NEWS = {"exact": {"type": "org.eventplane.alarm.news.v1"}}


@pytest.fixture
def dynamodb(aws: None) -> Any:
    client = boto3.client("dynamodb")
    create_table(client, "subscriptions", PARTITION, SORT)
    return client


def test_what_it_writes_is_what_routers_read(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    own.subscribe("news", NEWS)
    own.subscribe("news", NEWS)  # the same again is the same
    with pytest.raises(AlreadySubscribedError):
        own.subscribe("news", {"exact": {"type": "other"}})
    (item,) = dynamodb.scan(TableName="subscriptions")["Items"]
    derived, refused = with_subscriptions(load_contract(), [read_subscription(item)])
    assert refused == {}
    assert "family-app-subscribes-news" in {each.name for each in derived.routes}
    own.unsubscribe("news")
    with pytest.raises(NotSubscribedError):
        own.unsubscribe("news")


@pytest.mark.source("F3")
def test_it_says_from_when_on_it_is_in_force(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    before = datetime.now(UTC)
    promised = own.subscribe("news", NEWS)
    after = datetime.now(UTC)
    assert before + IN_FORCE <= promised <= after + IN_FORCE
    assert own.subscribe("news", NEWS) >= promised  # the same again, from when nobody knows better
    for created_at, expected in (("2026-01-01T00:00:00Z", True), ("nonsense", False)):
        old = new_subscription("family-app", "old", NEWS, created_at)
        dynamodb.put_item(TableName="subscriptions", Item=subscription_item(old))
        assert (own.subscribe("old", NEWS) < before) is expected


def test_what_is_wrong_is_named_before_it_is_written(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    with pytest.raises(SubscriptionError) as wrong:
        own.subscribe("News", {"sql": "type = ("})
    assert {each.path for each in wrong.value.problems} == {"name", "filter.sql"}
    assert dynamodb.scan(TableName="subscriptions")["Items"] == []


def test_a_table_that_does_not_answer_is_named(dynamodb: Any) -> None:
    with pytest.raises(UnavailableError):
        DynamoDbSubscriptions(dynamodb, "elsewhere", "family-app").subscribe("news", NEWS)
