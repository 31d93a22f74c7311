"""Whom an event can be for: the devices of the fleet's registry that are not decommissioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eventplane.fleet import State
from eventplane.fleet_registry import KEY, Registry

_READ: Final = 100
"""Devices that one call looks at; of a group it may find none among them."""


@dataclass(frozen=True, slots=True)
class Devices:
    """`things` of the fleet, and behind which to read on; None at the end."""

    things: tuple[str, ...]
    after: str | None


class Fleet:
    """Reads `table` through a boto3 DynamoDB client. Raises botocore's errors."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table
        self._registry = Registry(client, table)

    def has(self, thing: str) -> bool:
        """Whether the device was made, and is not gone."""
        return self.groups(thing) is not None

    def groups(self, thing: str) -> frozenset[str] | None:
        """The groups of a device; None where `has` is false."""
        device = self._registry.read(thing)
        return None if device is None or device.state is State.DECOMMISSIONED else device.groups

    def page(self, group: str | None, after: str | None) -> Devices:
        """The next devices, of `group` or of all."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "ProjectionExpression": f"{KEY}, #g, #s",
            "FilterExpression": "#s <> :gone" + (" AND contains(#g, :group)" if group else ""),
            "ExpressionAttributeNames": {"#s": "state", "#g": "groups"},
            "ExpressionAttributeValues": {":gone": {"S": State.DECOMMISSIONED.value}},
            "Limit": _READ,
        }
        if group:
            request["ExpressionAttributeValues"][":group"] = {"S": group}
        if after is not None:
            request["ExclusiveStartKey"] = {KEY: {"S": after}}
        answer = self._client.scan(**request)
        last = answer.get("LastEvaluatedKey")
        things = tuple(item[KEY]["S"] for item in answer["Items"])
        return Devices(things, last[KEY]["S"] if last else None)
