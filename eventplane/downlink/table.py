"""The items in DynamoDB, and the requests that read and write them: on condition that nobody wrote meanwhile.

The client is the caller's, so that functions and commands agree on every attribute and the core needs no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.desired import AWAY_MS, Desired, Identity, Message, State
from eventplane.fleet import bucket_of

TABLE: Final = "desired"
"""What the table is called, without project and environment."""

PARTITION_KEY: Final = "thing"
SORT_KEY: Final = "sk"

INDEX: Final = "work"
"""The index by `work`, the device's share (`eventplane.fleet.BUCKETS`), and `due_at_ms`. What need not be
looked at is not in it. It has the keys only: look at the item before believing it."""

PENDING_INDEX: Final = "pending"
"""The index of one device's items by `due_at_ms`: what a device that subscribes is waiting for. Keys only."""

INDEX_KEY: Final = "work"
INDEX_SORT_KEY: Final = "due_at_ms"

_PREFIXES: Final = {Downlink.STATE: "s#", Downlink.COMMAND: "c#"}
_NUMBERS: Final = ("reset", "attempts", "last_order", "fence", "revision")
_TEXTS: Final = ("owner", "acknowledged_uid", "epoch")

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's low-level API has it."""


def sort_key(kind: Downlink, key: str) -> str:
    """Where a key of a kind stands under its device: `s#` a state, `c#` the commands."""
    return _PREFIXES[kind] + key


def key_of(thing: str, sk: str) -> dict[str, dict[str, str]]:
    """The primary key of an item."""
    return {PARTITION_KEY: {"S": thing}, SORT_KEY: {"S": sk}}


def read_request(table: str, thing: str, sk: str) -> dict[str, Any]:
    """The arguments of GetItem, consistent."""
    return {"TableName": table, "Key": key_of(thing, sk), "ConsistentRead": True}


def page_request(table: str, thing: str, limit: int, after: str | None = None) -> dict[str, Any]:
    """The arguments of Query for `limit` items of a device, from behind the sort key `after`; consistent."""
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
    """The arguments of Query for the `limit` items of a share that are due longest at `now_ms` (Unix ms)."""
    return {
        "TableName": table,
        "IndexName": INDEX,
        "KeyConditionExpression": "#b = :b AND #d <= :d",
        "ExpressionAttributeNames": {"#b": INDEX_KEY, "#d": INDEX_SORT_KEY},
        "ExpressionAttributeValues": {":b": {"N": str(bucket)}, ":d": {"N": str(now_ms)}},
        "Limit": limit,
    }


def pending_request(table: str, thing: str, now_ms: int, limit: int) -> dict[str, Any]:
    """The arguments of Query for the `limit` items of a device that wait longest for something at `now_ms`
    (Unix ms), consistent; tombstones with their rest of life do not wait."""
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
    """The arguments of PutItem; ConditionalCheckFailedException means that others wrote meanwhile."""
    written = to_item(replace(item, revision=item.revision + 1))
    return {"TableName": table, "Item": written, **_unchanged(item)}


def remove_request(table: str, item: Desired) -> dict[str, Any]:
    """The arguments of DeleteItem, on the same condition."""
    key = key_of(item.thing, sort_key(item.kind, item.key))
    return {"TableName": table, "Key": key, **_unchanged(item)}


def _unchanged(item: Desired) -> dict[str, Any]:
    if item.revision == 0:
        return {
            "ConditionExpression": "attribute_not_exists(#k)",
            "ExpressionAttributeNames": {"#k": PARTITION_KEY},
        }
    return {
        "ConditionExpression": "#r = :r",
        "ExpressionAttributeNames": {"#r": "revision"},
        "ExpressionAttributeValues": {":r": {"N": str(item.revision)}},
    }


def to_item(item: Desired) -> dict[str, dict[str, Any]]:
    """The item as DynamoDB has it; what is empty is left out."""
    written: dict[str, dict[str, Any]] = {
        **key_of(item.thing, sort_key(item.kind, item.key)),
        "state": {"S": item.state.value},
        **{name: {"N": str(getattr(item, name))} for name in _NUMBERS},
        **{name: {"S": text} for name in _TEXTS if (text := getattr(item, name))},
    }
    if item.message:
        written["message"] = _from_message(item.message)
    if item.sent:
        version, sender, source, id = item.sent
        names = {"sender": {"S": sender}, "source": {"S": source}, "id": {"S": id}}
        written["sent"] = {"M": {"version": {"N": str(version)}, **names}}
    if item.waiting:
        written["waiting"] = {"L": [_from_message(each) for each in item.waiting]}
    if item.deletes:
        written["deletes"] = {"M": {uid: {"N": str(version)} for uid, version in item.deletes}}
    if item.recent:
        written["recent"] = {"L": [{"S": each} for each in item.recent]}
    if item.acknowledged_version is not None:
        written["acknowledged_version"] = {"N": str(item.acknowledged_version)}
    if item.due_at_ms is not None:
        written[INDEX_KEY] = {"N": str(bucket_of(item.thing))}
        written[INDEX_SORT_KEY] = {"N": str(item.due_at_ms)}
    return written


def from_item(item: Item) -> Desired:
    """What an item holds."""
    sk = item[SORT_KEY]["S"]
    kind = next(kind for kind, prefix in _PREFIXES.items() if sk.startswith(prefix))
    deletes = ((uid, int(each["N"])) for uid, each in item.get("deletes", {}).get("M", {}).items())
    return Desired(
        thing=item[PARTITION_KEY]["S"],
        key=sk.removeprefix(_PREFIXES[kind]),
        kind=kind,
        message=_to_message(item["message"]["M"]) if "message" in item else None,
        state=State(item["state"]["S"]),
        sent=_to_identity(item["sent"]["M"]) if "sent" in item else None,
        waiting=tuple(_to_message(each["M"]) for each in item.get("waiting", {}).get("L", ())),
        deletes=tuple(sorted(deletes, key=lambda each: (each[1], each[0]))),
        recent=tuple(each["S"] for each in item.get("recent", {}).get("L", ())),
        acknowledged_version=_number(item, "acknowledged_version"),
        due_at_ms=_number(item, INDEX_SORT_KEY),
        **_plain_members(item),
    )


def _plain_members(item: Item) -> dict[str, Any]:
    """The members of `Desired` that are one number or one text."""
    numbers = {name: int(item[name]["N"]) for name in _NUMBERS}
    return numbers | {name: item[name]["S"] for name in _TEXTS if name in item}


def _from_message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {
        "uid": {"S": message.uid},
        "version": {"N": str(message.version)},
        "is_deleted": {"BOOL": message.is_deleted},
        "sender": {"S": message.sender},
        "source": {"S": message.source},
        "id": {"S": message.id},
        "text": {"S": message.text},
        "order": {"N": str(message.order)},
    }
    if message.expires_at_ms is not None:
        written["expires_at_ms"] = {"N": str(message.expires_at_ms)}
    return {"M": written}


def _to_message(item: Item) -> Message:
    return Message(
        uid=item["uid"]["S"],
        version=int(item["version"]["N"]),
        is_deleted=item["is_deleted"]["BOOL"],
        sender=item["sender"]["S"],
        source=item["source"]["S"],
        id=item["id"]["S"],
        text=item["text"]["S"],
        order=int(item["order"]["N"]),
        expires_at_ms=_number(item, "expires_at_ms"),
    )


def _to_identity(item: Item) -> Identity:
    return int(item["version"]["N"]), item["sender"]["S"], item["source"]["S"], item["id"]["S"]


def _number(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


WORK_QUEUE: Final = "downlink-work"
"""What the queue is called, without project and environment."""


def one_reset(key: str, thing: str) -> dict[str, Any]:
    """Return the order for one device; the time at which it was put into the queue numbers the reset."""
    return {"reset": {"key": key, "thing": thing}}


def fleet_reset(key: str, *, number: int | None = None, after: str | None = None) -> dict[str, Any]:
    """Return the order for all devices; `after` which one to go on, once the reset has a `number`."""
    return {"reset": {"key": key, "number": number, "after": after}}
