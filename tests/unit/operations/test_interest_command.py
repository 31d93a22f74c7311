"""`interest`: publish and withdraw the interest of the cloud."""

from os import urandom
from pathlib import Path
from typing import Any

import boto3
import pytest

from eventplane.contract import Contract, subscription_table
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.downlink import table as desired
from eventplane.downlink.addressing import addressed
from eventplane.envelope import parse_event
from eventplane.interest.table import PUBLISHED, PublishedFilters
from eventplane.interest.uplink import uplink_filters
from eventplane.records import Records
from eventplane.resource_names import resource_name
from eventplane_aws.tables import DynamoDbTables
from tests.dynamodb import create_table
from tests.small_contract import with_changes
from tests.unit.operations.support import ENVIRONMENT, Plane, Run, RunJson

DESIRED = resource_name(ENVIRONMENT, desired.TABLE)
SUBSCRIPTIONS = resource_name(ENVIRONMENT, subscription_table.SUBSCRIPTIONS_TABLE)
NEWS = {"exact": {"type": "org.example.news.v1"}}


@pytest.fixture
def dynamodb(plane: Plane) -> Any:
    client = boto3.client("dynamodb")
    create_table(client, SUBSCRIPTIONS, subscription_table.PARTITION, subscription_table.SORT)
    create_table(client, DESIRED, desired.PARTITION_KEY, desired.SORT_KEY)
    return client


def test_publishing_makes_the_plane_send_its_interest_again(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract, tmp_path: Path
) -> None:
    Records(DynamoDbTables(dynamodb, urandom), DESIRED, PUBLISHED).write(PublishedFilters(1, ""))
    status, _, err = run("interest", "publish")
    assert (status, "forward: wanted" in err) == (1, True)
    assert dynamodb.scan(TableName=DESIRED)["Count"] == 1

    asking = tmp_path / "contract.json"
    asking.write_bytes(with_changes(contract, {"participants/device/outbox/forward": "wanted"}).canonical)
    status, out, _ = run("interest", "publish", "--contract", str(asking))
    assert (status, "within a minute" in out) == (0, True)
    assert dynamodb.scan(TableName=DESIRED)["Items"] == []
    assert plane.received("operations-outbox") == []


def test_interest_is_published_to_all_devices_only(run: Run) -> None:
    assert run("interest", "publish", "--device", "home-1")[0] == 2


@pytest.mark.lost_answers
def test_it_is_withdrawn_by_an_event_of_operations(plane: Plane, run: Run, contract: Contract) -> None:
    assert run("interest", "withdraw", "--device", "home-1")[0] == 0
    (sent,) = plane.received("operations-outbox")
    event = parse_event(sent["Body"])
    told = addressed(event, contract.downlink(event.type), 10**13)
    assert (told.message.is_deleted, told.target.thing) == (True, "home-1")


@pytest.mark.lost_answers
def test_it_is_withdrawn_through_an_outbox_in_order(
    plane: Plane, run: Run, contract: Contract, tmp_path: Path
) -> None:
    ordered = tmp_path / "contract.json"
    ordered.write_bytes(
        with_changes(contract, {"participants/operations/outbox/transport": "sqs_fifo"}).canonical
    )
    plane.create_pair("operations-outbox", is_fifo=True)
    assert run("interest", "withdraw", "--contract", str(ordered))[0] == 0
    assert len(plane.received("operations-outbox")) == 1


def test_what_routes_and_subscriptions_take_is_shown(
    dynamodb: Any, run_json: RunJson, contract: Contract
) -> None:
    assert run_json("interest", "show") == uplink_filters(contract)
    news = new_subscription("carers", "news", NEWS, "2026-01-01T00:00:00Z")
    dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=SUBSCRIPTION.to_item(news))
    assert any(NEWS in each["all"] for each in run_json("interest", "show") if "all" in each)
