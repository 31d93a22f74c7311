"""A participant's own routes in the plane's table."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from contract import load_contract
from eventplane.contract.subscription import PARTITION, SORT, read_subscription, with_subscriptions
from eventplane_client.dynamodb_subscriptions import DynamoDbSubscriptions
from eventplane_client.errors import (
    AlreadySubscribedError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
)
from tests.dynamodb import create_table

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


def test_what_is_wrong_is_named_before_it_is_written(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    with pytest.raises(SubscriptionError) as wrong:
        own.subscribe("News", {"sql": "type = ("})
    assert {each.path for each in wrong.value.problems} == {"name", "filter.sql"}
    assert dynamodb.scan(TableName="subscriptions")["Items"] == []


def test_a_table_that_does_not_answer_is_named(dynamodb: Any) -> None:
    with pytest.raises(UnavailableError):
        DynamoDbSubscriptions(dynamodb, "elsewhere", "family-app").subscribe("news", NEWS)
