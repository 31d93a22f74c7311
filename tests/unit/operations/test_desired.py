"""Desired state of devices, as the operator sees, resets and removes it."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from eventplane.contract import Downlink
from eventplane.downlink import table as keys
from eventplane.downlink.desired import Desired, KeyedEvent, Phase
from eventplane.records import Records
from eventplane.resource_names import resource_name
from tests.dynamodb import records
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
