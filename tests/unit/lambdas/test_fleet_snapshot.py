"""The snapshot of the fleet's registry; moto plays the registry and the archive."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from eventplane.archive_layout import FLEET_FOLDER
from eventplane.fleet import FLEET_KEY, FleetRecord, FleetTable, LifecycleState, made, to_item
from lambdas.common.archive import Archive
from lambdas.fleet import snapshot
from tests.dynamodb import create_table
from tests.unit.lambdas.support import LambdaContext

BUCKET, TABLE = "archive", "fleet"
AT_MS = 1_772_409_599_000
"""2026-03-01T23:59:59Z."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "POWERTOOLS_SERVICE_NAME": "test",
        "EVENTPLANE_FLEET_TABLE": TABLE,
        "EVENTPLANE_ARCHIVE_BUCKET": BUCKET,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(snapshot, "system_clock", lambda: AT_MS)
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        create_table(boto3.client("dynamodb"), TABLE, FLEET_KEY)
        snapshot.service.cache_clear()
        yield client
    snapshot.service.cache_clear()


def objects(s3: Any) -> dict[str, list[dict[str, Any]]]:
    """The lines of each object of the archive."""
    found = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    texts = {
        each["Key"]: gzip.decompress(s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read())
        for each in found
    }
    return {key: [json.loads(line) for line in text.splitlines()] for key, text in texts.items()}


def test_the_devices_in_service_are_written_with_their_state_into_the_hour(s3: Any) -> None:
    registry = FleetTable(boto3.client("dynamodb"), TABLE)
    for number, state in enumerate(LifecycleState):
        registry.write(replace(made(f"home-{number}", 1), state=state, changed_at_ms=9, since_ms=number))
    assert snapshot.handle({}, LambdaContext()) == {"devices": 2}
    ((key, lines),) = objects(s3).items()
    assert key == "fleet/date=2026-03-01/hour=23/snapshot.json.gz"
    assert sorted(lines, key=lambda each: str(each["thing"])) == [
        {"thing": "home-1", "state": "provisioned", "since_ms": 1},
        {"thing": "home-2", "state": "quarantined", "since_ms": 2},
    ]
    assert [each.name for each in FLEET_FOLDER.columns] == [each.name for each in fields(FleetRecord)]


def test_a_snapshot_that_is_repeated_within_the_hour_replaces_itself(s3: Any) -> None:
    registry = FleetTable(boto3.client("dynamodb"), TABLE)
    for number in range(2):
        registry.write(replace(made(f"home-{number}", 1), state=LifecycleState.PROVISIONED))
        snapshot.handle({}, LambdaContext())
    ((_, lines),) = objects(s3).items()
    assert {each["thing"] for each in lines} == {"home-0", "home-1"}


def test_a_large_fleet_is_read_page_by_page(s3: Any) -> None:
    registry = FleetTable(boto3.client("dynamodb"), TABLE)
    # A page of a scan ends at 1 MiB.
    for number in range(5):
        device = replace(made(f"home-{number}", 1), state=LifecycleState.PROVISIONED, reason="x" * 300_000)
        registry.write(device)
    assert snapshot.handle({}, LambdaContext()) == {"devices": 5}
    ((_, lines),) = objects(s3).items()
    assert len({each["thing"] for each in lines}) == 5


def test_a_registry_without_a_device_in_service_leaves_no_object(s3: Any) -> None:
    FleetTable(boto3.client("dynamodb"), TABLE).write(made("home-1", 1))
    assert snapshot.handle({}, LambdaContext()) == {"devices": 0}
    assert objects(s3) == {}


def test_a_registry_that_fails_half_way_leaves_no_object(s3: Any) -> None:
    def half() -> Iterator[FleetRecord]:
        yield FleetRecord("home-1", LifecycleState.PROVISIONED, 1)
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "Scan")

    broken = snapshot.FleetSnapshot(read=half, archive=Archive(s3, BUCKET), clock=lambda: AT_MS)
    with pytest.raises(ClientError, match="Throttling"):
        broken.write()
    assert objects(s3) == {}


def test_a_device_of_before_is_in_its_state_since_its_last_change(s3: Any) -> None:
    item = to_item(replace(made("home-1", 7), state=LifecycleState.PROVISIONED))
    del item["since_ms"]
    boto3.client("dynamodb").put_item(TableName=TABLE, Item=item)
    snapshot.handle({}, LambdaContext())
    ((_, lines),) = objects(s3).items()
    assert lines == [asdict(FleetRecord("home-1", LifecycleState.PROVISIONED, 7))]
