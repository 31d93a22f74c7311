"""The table of the filters in DynamoDB. Items go by themselves when their window is over."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.ordering import Stream
from eventplane_client.aws import code_of

CONDITION_FAILED: Final = "ConditionalCheckFailedException"
"""The error code of a write whose condition does not hold (DynamoDB API)."""

PARTITION: Final = "reader"
"""Starts with the participant's name and `/`, so that a role can be kept to its own items."""

SORT: Final = "event"

EXPIRES: Final = "expires"
"""When an item may go, Unix seconds: the table's time to live."""

WINDOW_S: Final = 1_209_600
"""How long an event is remembered by default, seconds: the longest that a queue keeps one."""

TABLE: Final = "filter"
"""What the environment's table is called, before `resource_name`."""

Item = dict[str, Any]


def text(value: str) -> Item:
    """A string as DynamoDB's own API has it."""
    return {"S": value}


def number(value: float) -> Item:
    """A number."""
    return {"N": str(int(value))}


def key_of(partition: str, sort: str) -> Item:
    """The key of an item."""
    return {PARTITION: text(partition), SORT: text(sort)}


def swap_epoch(
    dynamodb: Any, table: str, participant: str, source: str, epoch: str, expires: float
) -> str | None:
    """Keep the `epoch` of `source`; the one before if that was another. Raises what boto3 raises."""
    key = key_of(f"{participant}/epochs", hashlib.sha256(source.encode()).hexdigest())
    found = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    before = str(found["epoch"]["S"]) if found else None
    if before == epoch:
        return None
    dynamodb.put_item(TableName=table, Item={**key, "epoch": text(epoch), EXPIRES: number(expires)})
    return before


def position_of(dynamodb: Any, table: str, participant: str, stream: Stream) -> int | None:
    """How far `stream` has come. Raises what boto3 raises."""
    key = _position_key(participant, stream)
    found = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    return int(found["reached"]["N"]) if found else None


def advance_position(
    dynamodb: Any, table: str, participant: str, stream: Stream, position: int, expires: float
) -> None:
    """Keep the `position` of `stream` unless a later one is there. Raises what boto3 raises.

    Those of a device do not expire: it counts on as long as its store lives, and may send an alarm a year.
    """
    values = {":position": number(position)}
    update = "SET reached = :position"
    if not stream.is_of_device:
        values[":expires"] = number(expires)
        update += f", {EXPIRES} = :expires"
    try:
        dynamodb.update_item(
            TableName=table,
            Key=_position_key(participant, stream),
            UpdateExpression=update,
            ConditionExpression="attribute_not_exists(reached) OR reached < :position",
            ExpressionAttributeValues=values,
        )
    except ClientError as error:
        if code_of(error) != CONDITION_FAILED:
            raise


def _position_key(participant: str, stream: Stream) -> Item:
    return key_of(f"{participant}/positions", hashlib.sha256(stream.text.encode()).hexdigest())
