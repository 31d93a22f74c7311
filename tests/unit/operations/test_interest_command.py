"""Telling devices what the cloud wants of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from eventplane.contract import Contract, Downlink, subscription
from eventplane.contract.interest import uplink_filters
from eventplane.contract.subscription import new_subscription, subscription_item
from eventplane.downlink.addressing import addressed
from eventplane.envelope import Envelope, parse_event
from eventplane.resource_names import resource_name
from eventplane.uplink_interest import UPLINK_KEY, read_uplink_interest
from lambdas.router.payload import PayloadCheck
from operations import interest_command
from tests.unit.operations.support import ENVIRONMENT, Plane

Run = Callable[..., tuple[int, str, str]]
NEWS = {"exact": {"type": "org.example.news.v1"}}


@pytest.fixture
def dynamodb(plane: Plane) -> Any:
    client = boto3.client("dynamodb")
    keys = {subscription.PARTITION: "HASH", subscription.SORT: "RANGE"}
    client.create_table(
        TableName=resource_name(ENVIRONMENT, subscription.TABLE),
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    return client


def sent(plane: Plane) -> list[Envelope]:
    """What came into the outbox of operations."""
    url = plane.urls["operations-outbox"]
    answer = plane.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [parse_event(each["Body"]) for each in answer.get("Messages", [])]


def test_it_tells_all_devices_what_routes_and_subscriptions_take(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract
) -> None:
    news = new_subscription("family-app", "news", NEWS, "2026-01-01T00:00:00Z")
    table = resource_name(ENVIRONMENT, subscription.TABLE)
    dynamodb.put_item(TableName=table, Item=subscription_item(news))
    assert run("interest", "--publish")[0] == 0
    (event,) = sent(plane)
    assert addressed(event, contract.downlink(event.type), 0).key == UPLINK_KEY
    assert contract.downlink(event.type) is Downlink.STATE
    assert PayloadCheck(contract).of_message()(event) is None
    wanted = read_uplink_interest(event)
    assert wanted.matches({"type": "org.example.news.v1"})
    assert wanted.matches({"type": "org.eventplane.climate.reading.v1"})
    assert not wanted.matches({"type": "org.eventplane.climate.raw.v1"})


def test_it_takes_it_back(plane: Plane, dynamodb: Any, run: Run, contract: Contract) -> None:
    assert run("interest", "--withdraw", "--device", "home-1")[0] == 0
    (event,) = sent(plane)
    told = addressed(event, contract.downlink(event.type), 0)
    assert (told.is_deleted, told.target.thing) == (True, "home-1")


def test_asked_for_nothing_it_only_shows_them(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract
) -> None:
    status, out, _ = run("interest", "--json")
    assert status == 0
    assert json.loads(out) == uplink_filters(contract)
    assert sent(plane) == []


def test_more_than_goes_down_in_one_event_is_named(
    plane: Plane, dynamodb: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interest_command, "MAX_DOWNLINK_EVENT_BYTES", 1_000)
    status, _, err = run("interest", "--publish")
    assert status == 1
    assert "--withdraw" in err
    assert sent(plane) == []
