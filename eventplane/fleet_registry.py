"""The fleet's registry as items of a DynamoDB table, and the one way to change them: read, decide, write if
nobody wrote meanwhile.

The client is the caller's, so that functions and commands agree on every attribute and the core needs no SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from eventplane.errors import EventPlaneError
from eventplane.fleet import IN_SERVICE, Device, FleetRecord, State

TABLE: Final = "fleet"
"""What the table is called, without project and environment."""

KEY: Final = "thing"
"""The table's partition key."""

ATTEMPTS: Final = 5
"""Two writers of one device are rare: a device asks for one certificate at a time."""

_TEXTS: Final = ("certificate", "pending", "reason")
_SETS: Final = ("replaced", "groups", "suspended")
_NUMBERS: Final = (
    "changed_at_ms",
    "since_ms",
    "registrations",
    "day",
    "registered_today",
    "replacement_until_ms",
    "revision",
)

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's low-level API has it."""


class ConflictError(EventPlaneError):
    """`thing` was written by others each time that it was read."""

    def __init__(self, thing: str) -> None:
        super().__init__(f"the registry's record of {thing!r} keeps changing; try again")
        self.thing = thing


class Store(Protocol):
    """The table."""

    def read(self, thing: str) -> Device | None:
        """The record of `thing`, as it is after all writes that were acknowledged."""

    def write(self, device: Device) -> bool:
        """Write `device` unless somebody wrote since its revision was read; whether it was written."""


class Registry:
    """The store in DynamoDB: `table` through a boto3 client. What that refuses is raised as it is."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, thing: str) -> Device | None:
        """See `Store`."""
        item = self._client.get_item(**read_request(self._table, thing)).get("Item")
        return from_item(item) if item else None

    def write(self, device: Device) -> bool:
        """See `Store`."""
        try:
            self._client.put_item(**write_request(self._table, device))
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def change(store: Store, thing: str, step: Callable[[Device | None], Device]) -> Device:
    """Replace the record of `thing` by what `step` makes of it, and return that.

    Nothing is written when `step` changes nothing. Raises `ConflictError`, and what `step` raises.
    """
    for _ in range(ATTEMPTS):
        before = store.read(thing)
        after = step(before)
        if after == before:
            return after
        if store.write(after):
            return replace(after, revision=after.revision + 1)
    raise ConflictError(thing)


def in_service(client: Any, table: str) -> Iterator[FleetRecord]:
    """Read the devices in service from `table`, a page of a boto3 DynamoDB client at a time.

    Changes of the last second may be missing. Raises botocore's errors.
    """
    states = {f":{number}": {"S": state.value} for number, state in enumerate(IN_SERVICE)}
    pages = client.get_paginator("scan").paginate(
        TableName=table,
        ProjectionExpression=f"{KEY}, #s, since_ms, changed_at_ms",
        FilterExpression=f"#s IN ({', '.join(states)})",
        ExpressionAttributeNames={"#s": "state"},
        ExpressionAttributeValues=states,
    )
    for page in pages:
        for item in page["Items"]:
            yield FleetRecord(item[KEY]["S"], State(item["state"]["S"]), _number(item, "since_ms"))


def read_request(table: str, thing: str) -> dict[str, Any]:
    """The arguments of GetItem."""
    return {"TableName": table, "Key": {KEY: {"S": thing}}, "ConsistentRead": True}


def write_request(table: str, device: Device) -> dict[str, Any]:
    """The arguments of PutItem; ConditionalCheckFailedException means that others wrote meanwhile."""
    item = to_item(replace(device, revision=device.revision + 1))
    request: dict[str, Any] = {"TableName": table, "Item": item}
    if device.revision == 0:
        return {
            **request,
            "ConditionExpression": "attribute_not_exists(#k)",
            "ExpressionAttributeNames": {"#k": KEY},
        }
    return {
        **request,
        "ConditionExpression": "#r = :r",
        "ExpressionAttributeNames": {"#r": "revision"},
        "ExpressionAttributeValues": {":r": {"N": str(device.revision)}},
    }


def to_item(device: Device) -> dict[str, dict[str, Any]]:
    """The device as an item; what is empty is left out, as DynamoDB has no empty sets."""
    item: dict[str, dict[str, Any]] = {KEY: {"S": device.thing}, "state": {"S": device.state.value}}
    item |= {name: {"S": value} for name in _TEXTS if (value := getattr(device, name))}
    item |= {name: {"N": str(getattr(device, name))} for name in _NUMBERS}
    if device.before is not None:
        item["before"] = {"S": device.before.value}
    item |= {name: {"SS": sorted(value)} for name in _SETS if (value := getattr(device, name))}
    return item


def from_item(item: Item) -> Device:
    """The device that an item holds."""
    texts: dict[str, Any] = {name: item[name]["S"] for name in _TEXTS if name in item}
    numbers: dict[str, Any] = {name: _number(item, name) for name in _NUMBERS}
    sets: dict[str, Any] = {name: frozenset(item.get(name, {}).get("SS", ())) for name in _SETS}
    before = State(item["before"]["S"]) if "before" in item else None
    state = State(item["state"]["S"])
    return Device(thing=item[KEY]["S"], state=state, before=before, **texts, **numbers, **sets)


def _number(item: Item, name: str) -> int:
    # Items of before have no `since_ms`.
    return int(item["changed_at_ms" if name == "since_ms" and name not in item else name]["N"])
