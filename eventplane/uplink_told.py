"""What all devices were told last of the cloud's interest: an item beside theirs, under no device's name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.contract.canonical import canonical_bytes
from eventplane.downlink.addressing import ALL
from eventplane.downlink.table import key_of, sort_key
from eventplane.uplink_interest import UPLINK_KEY

TOLD_SORT_KEY: Final = sort_key(Downlink.STATE, UPLINK_KEY)
"""Where it stands in the table, under the device `ALL`."""

_AT: Final = "told_at_ms"


@dataclass(frozen=True, slots=True)
class Told:
    """The `digest` of the filters, and when they were sent (Unix milliseconds), which is the state's version.

    Without a digest somebody began to tell them, and nobody knows whether it came to that.
    """

    at_ms: int
    digest: str = ""


def digest_of(filters: Sequence[object] | None) -> str:
    """The same for the same filters; None: everything."""
    return hashlib.sha256(canonical_bytes(None if filters is None else list(filters))).hexdigest()


def told_key() -> dict[str, dict[str, str]]:
    """The primary key of the item."""
    return key_of(ALL, TOLD_SORT_KEY)


def read_told(item: Mapping[str, Mapping[str, Any]]) -> Told:
    """What `item` says. Raises KeyError or ValueError where it is damaged."""
    return Told(int(item[_AT]["N"]), item["digest"]["S"])


def begin_request(table: str, at_ms: int) -> dict[str, Any]:
    """The arguments of PutItem before telling; ConditionalCheckFailedException: somebody began later."""
    return _put(table, Told(at_ms), "attribute_not_exists(#a) OR #a < :a")


def done_request(table: str, told: Told) -> dict[str, Any]:
    """The arguments of PutItem after telling; ConditionalCheckFailedException: somebody began meanwhile."""
    return _put(table, told, "#a = :a")


def _put(table: str, told: Told, condition: str) -> dict[str, Any]:
    # Without the indexes' attributes: nothing is ever due for it.
    return {
        "TableName": table,
        "Item": {**told_key(), "digest": {"S": told.digest}, _AT: {"N": str(told.at_ms)}},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#a": _AT},
        "ExpressionAttributeValues": {":a": {"N": str(told.at_ms)}},
    }
