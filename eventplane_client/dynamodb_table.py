"""The table of the filters in DynamoDB. Items expire with their window."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from time import time
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.ordering import Stream
from eventplane_client.aws import code_of, no_state
from eventplane_client.ports import Lease

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


class DynamoDbState:
    """What both filters in DynamoDB share: their settings, and how far each stream has come.

    They remember for `window_s` seconds what readers of `participant` had, in `table`. An event whose reader
    has neither settled it nor renewed its claim within the `lease` is in doubt; `clock` returns Unix seconds.
    Failures raise `StateError`.
    """

    def __init__(
        self,
        dynamodb: Any,
        table: str,
        participant: str,
        *,
        lease: Lease,
        window_s: float = WINDOW_S,
        clock: Callable[[], float] = time,
    ) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._participant = participant
        self._lease = lease
        self._window_s = window_s
        self._clock = clock
        self._session = secrets.token_hex(8)
        self._in_hand: set[bytes] = set()

    def tries(self, key: bytes) -> int:  # noqa: ARG002 (the queue counts)
        """Return 0: the queue counts."""
        return 0

    def epoch(self, source: str, epoch: str) -> str | None:
        """Store the `epoch` of `source`; return the one before if that was another."""
        key = self._hashed_key("epochs", source)
        with no_state(self._table):
            found = self._get(key)
            before = str(found["epoch"]["S"]) if found else None
            if before == epoch:
                return None
            item = {**key, "epoch": text(epoch), EXPIRES: self._expiry()}
            self._dynamodb.put_item(TableName=self._table, Item=item)
        return before

    def position(self, stream: Stream) -> int | None:
        """Return the first number of `stream` that is not done, None where none was stored."""
        with no_state(self._table):
            found = self._get(self._hashed_key("positions", stream.text))
        return int(found["reached"]["N"]) if found else None

    def advance(self, stream: Stream, position: int) -> None:
        """Store the `position` of `stream` unless a later one is stored.

        Those of a device do not expire: it counts as long as its store lives, and may send one alarm a year.
        """
        values = {":position": number(position)}
        update = "SET reached = :position"
        if not stream.is_of_device:
            values[":expires"] = self._expiry()
            update += f", {EXPIRES} = :expires"
        with no_state(self._table):
            try:
                self._dynamodb.update_item(
                    TableName=self._table,
                    Key=self._hashed_key("positions", stream.text),
                    UpdateExpression=update,
                    ConditionExpression="attribute_not_exists(reached) OR reached < :position",
                    ExpressionAttributeValues=values,
                )
            except ClientError as error:
                if code_of(error) != CONDITION_FAILED:
                    raise

    def close(self) -> None:
        """Do nothing: the client is the caller's."""

    def _expiry(self) -> Item:
        return number(self._clock() + self._window_s)

    def _get(self, key: Item) -> Item | None:
        item: Item | None = self._dynamodb.get_item(TableName=self._table, Key=key, ConsistentRead=True).get(
            "Item"
        )
        return item

    def _hashed_key(self, kind: str, name: str) -> Item:
        return key_of(f"{self._participant}/{kind}", hashlib.sha256(name.encode()).hexdigest())
