"""`eventplane desired` and `eventplane restore`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from os import urandom
from typing import Any

import boto3
import pytest

from eventplane.contract import Downlink
from eventplane.device_record import FLEET_TABLE, REGISTRY, Device, LifecycleState
from eventplane.downlink import table as keys
from eventplane.downlink.desired import Desired, KeyedEvent, Phase
from eventplane.interest.table import INTEREST_TABLE
from eventplane.records import Item, Records
from eventplane.resource_names import resource_name
from eventplane_aws.tables import DynamoDbTables
from operations import restore_command
from operations.cloud import Cloud
from tests.dynamodb import create_table, records
from tests.fakes.aws import FakeAws
from tests.unit.operations.support import ENVIRONMENT, Run, RunJson

TABLE = resource_name(ENVIRONMENT, keys.TABLE)
RESET_MS = 1_767_225_600_000


def message(version: int, *, is_deleted: bool = False) -> KeyedEvent:
    text = dict.fromkeys(("uid", "sender", "source"), "s")
    return KeyedEvent(**text, version=version, is_deleted=is_deleted, id=f"{version}", text="{}")


def state(thing: str, key: str, version: int, **more: Any) -> Desired:
    return Desired(thing=thing, key=key, kind=Downlink.STATE, message=message(version), **more)


@pytest.fixture
def items(fake_aws: FakeAws) -> Records[Desired]:
    """A state, a tombstone, commands, and another device's state."""
    items = records(fake_aws.dynamodb, TABLE, keys.DESIRED)
    tombstone = message(3, is_deleted=True)
    for each in (
        state("home-1", "a/b/c", 12, owner="s", reset=RESET_MS, acknowledged_version=11),
        Desired(thing="home-1", key="a/b/d", kind=Downlink.STATE, message=tombstone),
        Desired(
            thing="home-1",
            key="x/y/z",
            kind=Downlink.COMMAND,
            message=message(1),
            waiting=(message(2), message(3)),
            state=Phase.SENDING,
            attempts=2,
            due_at_ms=RESET_MS,
        ),
        state("home-2", "a/b/c", 9),
    ):
        assert items.write(each)
    return items


def test_a_device_s_keys_are_listed(items: Records[Desired], run: Run, run_json: RunJson) -> None:
    status, out, _ = run("desired", "list", "home-1")
    assert (status, [line.split() for line in out.splitlines()][1:]) == (
        0,
        [
            ["x/y/z", "command", "1", "+2", "-", "sending", "2", "2026-01-01", "00:00:00.000"],
            ["a/b/c", "state", "12", "11", "idle", "0", "-"],
            ["a/b/d", "state", "3", "(deleted)", "-", "idle", "0", "-"],
        ],
    )
    (document,) = run_json("desired", "list", "home-2")
    assert (document["key"], document["desired"], document["acknowledged"]) == ("a/b/c", "9", None)


@pytest.mark.lost_answers
def test_what_a_device_had_can_be_removed_more_than_once(items: Records[Desired]) -> None:
    found = [keys.sort_key(each.kind, each.key) for each in items.of("home-1")]
    assert found == ["c#x/y/z", "s#a/b/c", "s#a/b/d"]
    for sk in (*found, *found):
        items.discard("home-1", sk)
    assert not list(items.of("home-1"))
    assert len(list(items.of("home-2"))) == 1


def test_a_key_is_shown_of_one_device_or_with_the_number_of_devices_that_have_it(
    items: Records[Desired], run: Run, run_json: RunJson
) -> None:
    (document,) = run_json("desired", "show", "a/b/c", "--device", "home-1")
    assert document["reset"] == "2026-01-01 00:00:00.000"
    assert (document["owner"], document["sender"], document["id"]) == ("s", "s", "12")
    status, out, _ = run("desired", "show", "a/b/c", "--device", "home-2")
    assert (status, [line.split()[0] for line in out.splitlines()]) == (0, ["KIND", "state"])

    for number in range(3, 8):
        assert items.write(state(f"home-{number}", "a/b/c", 9))
    # What all were sent of the cloud's interest is no device's.
    boto3.client("dynamodb").put_item(TableName=TABLE, Item=keys.DESIRED.key_of("*", "s#a/b/c"))
    most, other = run_json("desired", "show", "a/b/c")
    assert (most["desired"], most["reset"], most["devices"]) == ("9", None, 6)
    assert (other["desired"], other["acknowledged"], other["devices"]) == ("12", 11, 1)


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (["--device", "home-1"], {"key": "a/b/c", "thing": "home-1"}),
        (["--all"], {"key": "a/b/c", "number": None, "after": None}),
    ],
)
@pytest.mark.lost_answers
def test_a_reset_is_ordered_of_the_downlink(
    items: Records[Desired], run: Run, options: list[str], order: dict[str, Any]
) -> None:
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName=resource_name(ENVIRONMENT, "downlink-work"))["QueueUrl"]
    status, out, _ = run("desired", "reset", "a/b/c", *options)
    assert (status, "desired show a/b/c" in out) == (0, True)
    (found,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(found["Body"]) == {"reset": order}


@pytest.mark.parametrize(
    ("arguments", "expected", "problem"),
    [
        (["list", "home-9"], 1, "home-9"),
        (["list", "home-1", "--env", "prod"], 1, "with --env"),
        (["show", "a/b/c", "--device", "home-9"], 1, "a/b/c"),
        (["reset", "a/b/c", "--all"], 1, "with --env"),  # no downlink
        (["list", "*"], 2, "one device"),
        (["reset", "a/b/c"], 2, ""),
        (["reset", "a/b/c", "--all", "--device", "home-1"], 2, ""),
        (["reset", "a/b/c", "--device", "*"], 2, "one device"),
        (["reset", "no-key", "--all"], 2, "no-key"),
        (["show", "no-key"], 2, "no-key"),
    ],
)
def test_missing_devices_and_wrong_words_are_named(
    items: Records[Desired], run: Run, arguments: list[str], expected: int, problem: str
) -> None:
    status, _, err = run("desired", *arguments)
    assert (status, problem in err) == (expected, True), err


AT = "2026-03-01T08:30:00Z"
FLEET = f"eventplane-{ENVIRONMENT}-{FLEET_TABLE}"
COPY = f"{FLEET}-at-20260301T083000Z"
PROVISIONED = LifecycleState.PROVISIONED


def device(thing: str, **others: object) -> Device:
    return replace(Device(thing=thing, state=PROVISIONED, changed_at_ms=1, since_ms=1), **others)


@pytest.fixture
def fleet(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Records[Device]:
    """The registry, of which DynamoDB keeps former states."""
    monkeypatch.setattr(restore_command, "enter", lambda _: Cloud(fake_aws))
    for table, key in ((FLEET, REGISTRY.key), (f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}", ("p", "s"))):
        create_table(fake_aws.dynamodb, table, *key)
    return Records(DynamoDbTables(fake_aws.dynamodb, urandom), FLEET, REGISTRY)


def kept_from(fake_aws: FakeAws, table: str, copy: str) -> None:
    """DynamoDB has made the copy, for a run whose answer was lost or that was ended."""
    fake_aws.dynamodb.restore_table_to_point_in_time(
        SourceTableName=table, TargetTableName=copy, RestoreDateTime=datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
    )


@pytest.mark.lost_answers
@pytest.mark.parametrize(("words", "done"), [(("--dry-run",), "to be written"), ((), "written")])
def test_devices_that_are_gone_or_unreadable_come_back_and_those_that_came_since_stay(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, words: tuple[str, ...], done: str
) -> None:
    then = [device("home-1", certificate="c1", condemned=frozenset({"c0"})), device("home-2")]
    assert all(map(fleet.write, then))
    kept_from(fake_aws, FLEET, COPY)
    fake_aws.dynamodb.delete_item(TableName=FLEET, Key=REGISTRY.key_of("home-1"))
    fake_aws.dynamodb.put_item(TableName=FLEET, Item={"thing": {"S": "home-2"}, "state": {"S": "?"}})
    fleet.write(device("home-3"))
    there = fake_aws.dynamodb.items(FLEET)
    assert run("restore", "fleet", "--at", AT, *words)[:2] == (0, f"fleet: 2 {done}\n")
    assert COPY not in tables(fake_aws)
    if words:
        assert fake_aws.dynamodb.items(FLEET) == there
        return
    found = [fleet.read(f"home-{number}") for number in (1, 2, 3)]
    assert [each and replace(each, revision=0) for each in found] == [*then, device("home-3")]


@pytest.mark.lost_answers
def test_a_copy_that_is_still_being_deleted_is_made_anew(
    fleet: Records[Device], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.write(device("home-1"))
    seen, status = iter(["DELETING"]), restore_command._status  # then it is gone
    monkeypatch.setattr(restore_command, "_status", lambda *of: next(seen, None) or status(*of))
    monkeypatch.setattr(restore_command.system, "sleep", lambda _: None)
    assert run("restore", "fleet", "--at", AT)[:2] == (0, "fleet: 1 as it is\n")


def tables(fake_aws: FakeAws) -> list[str]:
    return list(fake_aws.dynamodb.list_tables()["TableNames"])


def test_quarantines_and_keys_of_since_then_stay(fleet: Records[Device], fake_aws: FakeAws, run: Run) -> None:
    before = fleet.write(device("home-1", certificate="c1", groups=frozenset({"pilot"})))
    assert before
    kept_from(fake_aws, FLEET, COPY)
    since = replace(
        before,
        state=LifecycleState.QUARANTINED,
        certificate="c2",
        condemned=frozenset({"c1"}),
        groups=frozenset(),
    )
    assert fleet.write(since)
    assert run("restore", "fleet", "--at", AT, "--over")[:2] == (0, "fleet: 1 written\n")
    assert fleet.read("home-1") == replace(since, groups=frozenset({"pilot"}), revision=since.revision + 2)
    assert tables(fake_aws) == [FLEET, f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}"]


@pytest.mark.parametrize(("words", "kept"), [((), "new"), (("--over",), "old")])
def test_what_has_changed_since_is_written_over_on_demand_only(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, words: tuple[str, ...], kept: str
) -> None:
    table = f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}"

    def item(text: str) -> Item:
        return {"p": {"S": "a"}, "s": {"S": "b"}, "text": {"S": text}}

    fake_aws.dynamodb.put_item(TableName=table, Item=item("old"))
    kept_from(fake_aws, table, f"{table}-at-20260301T083000Z")
    fake_aws.dynamodb.put_item(TableName=table, Item=item("new"))
    assert run("restore", "interest", "--at", AT, *words)[0] == 0
    (found,) = fake_aws.dynamodb.items(table)
    assert found["text"] == {"S": kept}


def test_a_moment_that_is_not_kept_is_named_with_those_that_are(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = fake_aws.dynamodb.refusal("InvalidRestoreTimeException", "no", "RestoreTableToPointInTime")

    def refuse(**_: object) -> None:
        raise refusal

    monkeypatch.setattr(fake_aws.dynamodb, "restore_table_to_point_in_time", refuse, raising=False)
    status, _, err = run("restore", "fleet", "--at", AT)
    assert status == 1
    assert (
        "cannot be restored as it was at 2026-03-01T08:30:00.000Z; name a moment of the last 35 days" in err
    )


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01", "2026-03-01T08:30:00"])
def test_a_moment_is_a_timestamp_with_a_zone(run: Run, text: str) -> None:
    status, _, err = run("restore", "fleet", "--at", text)
    assert (status, "is no time; write" in err) == (2, True)
