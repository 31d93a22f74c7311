"""What the operator sees of a device's desired state, and what is left of it when the device goes."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from eventplane.__main__ import main as command_line
from eventplane.contract import Downlink
from eventplane.downlink import table as keys
from eventplane.downlink.desired import Desired, Message, State
from operations.desired import DesiredItems
from tests.dynamodb import create_table


def main(arguments: list[str]) -> int:
    return command_line(["desired", *arguments])


TABLE = "eventplane-dev-desired"


def message(version: int, *, is_deleted: bool = False) -> Message:
    return Message(
        uid="",
        version=version,
        is_deleted=is_deleted,
        sender="s",
        source="/s",
        id=f"{version}",
        text="{}",
    )


@pytest.fixture
def items(aws: None) -> DesiredItems:
    """A state, a tombstone, commands, and another device's state."""
    client = boto3.client("dynamodb")
    create_table(client, TABLE, keys.PARTITION_KEY, keys.SORT_KEY)
    state, commands = Downlink.STATE, Downlink.COMMAND
    for each in (
        Desired(
            thing="home-1",
            key="a/b/c",
            kind=state,
            owner="s",
            reset=1_767_225_600_000,
            message=message(12),
            acknowledged_version=11,
        ),
        Desired(thing="home-1", key="a/b/d", kind=state, message=message(3, is_deleted=True)),
        Desired(
            thing="home-1",
            key="x/y/z",
            kind=commands,
            message=message(1),
            waiting=(message(2), message(3)),
            state=State.SENDING,
            attempts=2,
            due_at_ms=1_767_225_600_000,
        ),
        Desired(thing="home-2", key="a/b/c", kind=state, message=message(9)),
    ):
        client.put_item(**keys.write_request(TABLE, each))
    return DesiredItems(client, TABLE)


def test_a_device_s_keys_are_listed(items: DesiredItems, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "home-1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["x/y/z", "command", "1", "+2", "-", "sending", "2", "2026-01-01", "00:00:00.000"],
        ["a/b/c", "state", "12", "11", "idle", "0", "-"],
        ["a/b/d", "state", "3", "(deleted)", "-", "idle", "0", "-"],
    ]
    assert main(["list", "home-2", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["key"], document["desired"], document["acknowledged"]) == ("a/b/c", "9", None)


def test_that_there_is_nothing_is_said(items: DesiredItems, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "home-9"]) == 1
    assert "home-9" in capsys.readouterr().err
    assert main(["list", "home-1", "--env", "prod"]) == 1
    assert "with --env" in capsys.readouterr().err


def test_what_a_device_had_can_be_removed_more_than_once(items: DesiredItems) -> None:
    found = items.keys("home-1")
    assert found == ["c#x/y/z", "s#a/b/c", "s#a/b/d"]
    for sk in (*found, *found):
        items.remove("home-1", sk)
    assert items.keys("home-1") == []
    assert items.keys("home-2") == ["s#a/b/c"]


def test_a_device_with_many_keys_is_read_to_its_end(items: DesiredItems) -> None:
    client = boto3.client("dynamodb")
    for number in range(250):
        key = f"a/b/{number}"
        each = Desired(thing="big", key=key, kind=Downlink.STATE, message=message(number))
        client.put_item(**keys.write_request(TABLE, each))
    assert len(list(items.of("big"))) == 250


def test_all_devices_are_no_device(items: DesiredItems, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "*"])
    assert "one device" in capsys.readouterr().err


def test_a_key_of_one_device_is_shown_with_its_reset_and_its_owner(
    items: DesiredItems, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "a/b/c", "--device", "home-1", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["reset"] == "2026-01-01 00:00:00.000"
    assert (document["owner"], document["sender"], document["id"]) == ("s", "s", "12")
    assert main(["show", "a/b/c", "--device", "home-2"]) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (head[0], row[0]) == ("KIND", "state")
    assert main(["show", "a/b/c", "--device", "home-9"]) == 1
    assert "a/b/c" in capsys.readouterr().err


def test_of_a_key_it_is_shown_how_many_devices_have_it(
    items: DesiredItems, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("dynamodb")
    for number in range(3, 8):
        each = Desired(thing=f"home-{number}", key="a/b/c", kind=Downlink.STATE, message=message(9))
        client.put_item(**keys.write_request(TABLE, each))
    # What all were told of the cloud's interest is no device's.
    client.put_item(TableName=TABLE, Item=keys.key_of("*", "s#a/b/c"))
    assert main(["show", "a/b/c", "--json"]) == 0
    most, other = json.loads(capsys.readouterr().out)
    assert (most["desired"], most["reset"], most["devices"]) == ("9", None, 6)
    assert (other["desired"], other["acknowledged"], other["devices"]) == ("12", 11, 1)


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (["--device", "home-1"], {"key": "a/b/c", "thing": "home-1"}),
        (["--all"], {"key": "a/b/c", "number": None, "after": None}),
    ],
)
def test_a_reset_is_ordered_of_the_downlink(
    items: DesiredItems,
    options: list[str],
    order: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="eventplane-dev-downlink-work")["QueueUrl"]
    assert main(["reset", "a/b/c", *options]) == 0
    assert "desired show a/b/c" in capsys.readouterr().out
    (found,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(found["Body"]) == {"reset": order}
    assert main(["reset", "a/b/c", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == "a/b/c"


def test_without_a_downlink_a_reset_says_so(items: DesiredItems, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", "a/b/c", "--all"]) == 1
    assert "with --env" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "a/b/c"],
        ["reset", "a/b/c", "--all", "--device", "home-1"],
        ["reset", "a/b/c", "--device", "*"],
        ["reset", "no-key", "--all"],
        ["show", "no-key"],
        ["show"],
    ],
)
def test_what_is_no_key_or_nobody_s_is_told(items: DesiredItems, arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
