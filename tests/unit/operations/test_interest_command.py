"""Telling devices what the cloud wants of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from eventplane.contract import Contract, compile_contract, subscription_table
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import subscription_item
from eventplane.downlink import table as desired
from eventplane.downlink.addressing import addressed
from eventplane.envelope import Envelope, parse_event
from eventplane.interest.table import begin_request
from eventplane.interest.uplink import uplink_filters
from eventplane.resource_names import resource_name
from tests.dynamodb import create_table
from tests.unit.operations.support import ENVIRONMENT, Plane

Run = Callable[..., tuple[int, str, str]]
DESIRED = resource_name(ENVIRONMENT, desired.TABLE)
SUBSCRIPTIONS = resource_name(ENVIRONMENT, subscription_table.SUBSCRIPTIONS_TABLE)
NEWS = {"exact": {"type": "org.example.news.v1"}}


@pytest.fixture
def dynamodb(plane: Plane) -> Any:
    client = boto3.client("dynamodb")
    tables = {
        SUBSCRIPTIONS: (
            subscription_table.PARTITION,
            subscription_table.SORT,
        ),
        DESIRED: (desired.PARTITION_KEY, desired.SORT_KEY),
    }
    for table, keys in tables.items():
        create_table(client, table, *keys)
    return client


def sent(plane: Plane) -> list[Envelope]:
    """What came into the outbox of operations."""
    url = plane.urls["operations-outbox"]
    answer = plane.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [parse_event(each["Body"]) for each in answer.get("Messages", [])]


def test_asked_to_publish_it_makes_the_plane_forget_what_it_told(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract, tmp_path: Path
) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["device"].setdefault("outbox", {})["forward"] = "wanted"
    asking = tmp_path / "contract.json"
    asking.write_bytes(compile_contract(document, "asking").canonical)
    dynamodb.put_item(**begin_request(DESIRED, 1))
    status, out, _ = run("interest", "publish", "--contract", str(asking))
    assert (status, "within a minute" in out) == (0, True)
    assert dynamodb.scan(TableName=DESIRED)["Items"] == []
    assert sent(plane) == []


def test_where_devices_send_everything_nobody_is_told(plane: Plane, dynamodb: Any, run: Run) -> None:
    dynamodb.put_item(**begin_request(DESIRED, 1))
    status, _, err = run("interest", "publish")
    assert (status, "forward: wanted" in err) == (1, True)
    assert dynamodb.scan(TableName=DESIRED)["Count"] == 1


def test_one_device_cannot_be_told_alone(run: Run) -> None:
    with pytest.raises(SystemExit):
        run("interest", "publish", "--device", "home-1")


def test_it_takes_it_back(plane: Plane, dynamodb: Any, run: Run, contract: Contract) -> None:
    assert run("interest", "withdraw", "--device", "home-1")[0] == 0
    (event,) = sent(plane)
    told = addressed(event, contract.downlink(event.type), 10**13)
    assert (told.message.is_deleted, told.target.thing) == (True, "home-1")


def test_asked_for_nothing_it_shows_what_routes_and_subscriptions_take(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract
) -> None:
    assert json.loads(run("interest", "show", "--json")[1]) == uplink_filters(contract)
    news = new_subscription("carers", "news", NEWS, "2026-01-01T00:00:00Z")
    dynamodb.put_item(
        TableName=SUBSCRIPTIONS,
        Item=subscription_item(news),
    )
    status, out, _ = run("interest", "show", "--json")
    assert status == 0
    assert any(NEWS in each["all"] for each in json.loads(out) if "all" in each)
    assert sent(plane) == []
