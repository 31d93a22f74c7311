"""The downlink's table in DynamoDB, the requests that read and write it, and the orders in its queue of work.

A write is conditional on the item that was read. The caller passes the requests to its own client, so that
functions and commands agree on every attribute and the core needs no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired, Message, State
from eventplane.downlink.transitions import AWAY_MS
from eventplane.fleet import bucket_of, unchanged

TABLE: Final = "desired"
"""The table's name, without project and environment."""

WORK_QUEUE: Final = "downlink-work"
"""The name of the queue of work, without project and environment."""

PARTITION_KEY: Final = "thing"
SORT_KEY: Final = "sk"

INDEX: Final = "work"
"""The index by `work`, the device's share (`eventplane.fleet.BUCKETS`), and `due_at_ms`. It has only the
items that are due some time, and only their keys: read the item before using it."""

PENDING_INDEX: Final = "pending"
"""The index of one device's items by `due_at_ms`: what waits for a device that subscribes. Keys only."""

INDEX_KEY: Final = "work"
INDEX_SORT_KEY: Final = "due_at_ms"

_PREFIXES: Final = {Downlink.STATE: "s#", Downlink.COMMAND: "c#"}

_PLAIN: Final = (
    "reset", "attempts", "last_order", "fence", "revision", "owner", "acknowledged_uid", "epoch",
    "acknowledged_version", "due_at_ms",
)  # fmt: skip
"""The members of `Desired` that are one number or one text."""

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's low-level API has it."""


def sort_key(kind: Downlink, key: str) -> str:
    """Return the sort key of a `key` under its device: `s#` for a state, `c#` for its commands."""
    return _PREFIXES[kind] + key


def key_of(thing: str, sk: str) -> dict[str, dict[str, str]]:
    """Return the primary key of an item."""
    return {PARTITION_KEY: {"S": thing}, SORT_KEY: {"S": sk}}


def read_request(table: str, thing: str, sk: str) -> dict[str, Any]:
    """Return the arguments of GetItem, consistent."""
    return {"TableName": table, "Key": key_of(thing, sk), "ConsistentRead": True}


def page_request(table: str, thing: str, limit: int, after: str | None = None) -> dict[str, Any]:
    """Return the arguments of Query for `limit` items of a device, after the sort key `after`; consistent."""
    request: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "#k = :k",
        "ExpressionAttributeNames": {"#k": PARTITION_KEY},
        "ExpressionAttributeValues": {":k": {"S": thing}},
        "ConsistentRead": True,
        "Limit": limit,
    }
    if after is not None:
        request["ExclusiveStartKey"] = key_of(thing, after)
    return request


def due_request(table: str, bucket: int, now_ms: int, limit: int) -> dict[str, Any]:
    """Return the arguments of Query for the `limit` items of a share that are due longest (Unix ms)."""
    return {
        "TableName": table,
        "IndexName": INDEX,
        "KeyConditionExpression": "#b = :b AND #d <= :d",
        "ExpressionAttributeNames": {"#b": INDEX_KEY, "#d": INDEX_SORT_KEY},
        "ExpressionAttributeValues": {":b": {"N": str(bucket)}, ":d": {"N": str(now_ms)}},
        "Limit": limit,
    }


def pending_request(table: str, thing: str, now_ms: int, limit: int) -> dict[str, Any]:
    """Return the arguments of Query for the `limit` items of a device that wait longest (Unix ms).

    Consistent. Stored tombstones, which are due when their time is over, do not wait.
    """
    return {
        "TableName": table,
        "IndexName": PENDING_INDEX,
        "KeyConditionExpression": "#k = :k AND #d <= :d",
        "ExpressionAttributeNames": {"#k": PARTITION_KEY, "#d": INDEX_SORT_KEY},
        "ExpressionAttributeValues": {":k": {"S": thing}, ":d": {"N": str(now_ms + AWAY_MS)}},
        "ConsistentRead": True,
        "Limit": limit,
    }


def write_request(table: str, item: Desired) -> dict[str, Any]:
    """Return the arguments of PutItem; ConditionalCheckFailedException: another writer was faster."""
    written = to_item(replace(item, revision=item.revision + 1))
    return {"TableName": table, "Item": written, **unchanged(item.revision, PARTITION_KEY)}


def remove_request(table: str, item: Desired) -> dict[str, Any]:
    """Return the arguments of DeleteItem, on the same condition."""
    key = key_of(item.thing, sort_key(item.kind, item.key))
    return {"TableName": table, "Key": key, **unchanged(item.revision, PARTITION_KEY)}


def to_item(item: Desired) -> dict[str, dict[str, Any]]:
    """Return the item as DynamoDB stores it; empty members are left out."""
    plain: dict[str, Any] = {name: getattr(item, name) for name in _PLAIN}
    written: dict[str, dict[str, Any]] = {
        **key_of(item.thing, sort_key(item.kind, item.key)),
        "state": _attribute(item.state.value),
        **{name: _attribute(value) for name, value in plain.items() if value not in ("", None)},
    }
    if item.message:
        written["message"] = _from_message(item.message)
    if item.sent:
        names = ("version", "sender", "source", "id")
        written["sent"] = {"M": {name: _attribute(each) for name, each in zip(names, item.sent, strict=True)}}
    if item.waiting:
        written["waiting"] = {"L": [_from_message(each) for each in item.waiting]}
    if item.deletes:
        written["deletes"] = {"M": {uid: _attribute(version) for uid, version in item.deletes}}
    if item.recent:
        written["recent"] = {"L": [_attribute(each) for each in item.recent]}
    if item.due_at_ms is not None:
        written[INDEX_KEY] = _attribute(bucket_of(item.thing))
    return written


def from_item(item: Item) -> Desired:
    """Read an item of the table."""
    sk = item[SORT_KEY]["S"]
    kind = next(kind for kind, prefix in _PREFIXES.items() if sk.startswith(prefix))
    sent = item["sent"]["M"] if "sent" in item else None
    deletes = ((uid, _value(each)) for uid, each in item.get("deletes", {}).get("M", {}).items())
    return Desired(
        thing=item[PARTITION_KEY]["S"],
        key=sk.removeprefix(_PREFIXES[kind]),
        kind=kind,
        message=_to_message(item["message"]) if "message" in item else None,
        state=State(item["state"]["S"]),
        sent=sent and (_value(sent["version"]), sent["sender"]["S"], sent["source"]["S"], sent["id"]["S"]),
        waiting=tuple(_to_message(each) for each in item.get("waiting", {}).get("L", ())),
        deletes=tuple(sorted(deletes, key=lambda each: (each[1], each[0]))),
        recent=tuple(each["S"] for each in item.get("recent", {}).get("L", ())),
        **{name: _value(item[name]) for name in _PLAIN if name in item},
    )


def _from_message(message: Message) -> dict[str, Any]:
    members = {name: getattr(message, name) for name in Message.__slots__}
    return {"M": {name: _attribute(value) for name, value in members.items() if value is not None}}


def _to_message(item: Mapping[str, Any]) -> Message:
    members = item["M"]
    return Message(**{name: _value(members[name]) for name in Message.__slots__ if name in members})


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def _value(attribute: Mapping[str, Any]) -> Any:
    return int(attribute["N"]) if "N" in attribute else next(iter(attribute.values()))


def one_reset(key: str, thing: str) -> dict[str, Any]:
    """Return the order to begin the versions of a state's key anew on one device.

    The time at which the order was queued numbers the reset.
    """
    return {"reset": {"key": key, "thing": thing}}


def fleet_reset(key: str, *, number: int | None = None, after: str | None = None) -> dict[str, Any]:
    """Return the order for all devices, or those `after` one, once the reset has a `number`."""
    return {"reset": {"key": key, "number": number, "after": after}}
