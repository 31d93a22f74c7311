"""The downlink's table, how it keeps desired states, and the orders in its queue of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired
from eventplane.downlink.transitions import AWAY_MS
from eventplane.presence import bucket_of
from eventplane.records import Item, RecordKind, Selection

TABLE: Final = "desired"
"""The table's name, without project and environment."""

WORK_QUEUE: Final = "downlink-work"
"""The name of the queue of work, without project and environment."""

PARTITION_KEY: Final = "thing"
SORT_KEY: Final = "sk"

INDEX: Final = "work"
"""The index by `work`, the device's share (`eventplane.presence.BUCKETS`), and `due_at_ms`. It has only the
items that are due some time, and only their keys: read the item before using it."""

PENDING_INDEX: Final = "pending"
"""The index of one device's items by `due_at_ms`: what waits for a device that subscribes. Keys only."""

INDEX_KEY: Final = "work"
INDEX_SORT_KEY: Final = "due_at_ms"

_PREFIXES: Final = {Downlink.STATE: "s#", Downlink.COMMAND: "c#"}


def sort_key(kind: Downlink, key: str) -> str:
    """Return the sort key of a `key` under its device: `s#` for a state, `c#` for its commands."""
    return _PREFIXES[kind] + key


def _upgraded(item: Item) -> Item:
    # 0.3.0 knows kind and key from the sort key only, and deletions by uid.
    sk = item[SORT_KEY]["S"]
    kind = next(kind for kind, prefix in _PREFIXES.items() if sk.startswith(prefix))
    versions = item.get("deletes", {"M": {}})["M"].items()
    deletes = [{"M": {"uid": {"S": uid}, "version": version}} for uid, version in versions]
    deletes.sort(key=lambda each: (int(each["M"]["version"]["N"]), each["M"]["uid"]["S"]))
    key = sk.removeprefix(_PREFIXES[kind])
    return {**item, "kind": {"S": kind.value}, "key": {"S": key}, "deletes": {"L": deletes}}


DESIRED: Final = RecordKind(
    type=Desired,
    key=(PARTITION_KEY, SORT_KEY),
    derived={
        SORT_KEY: lambda item: sort_key(item.kind, item.key),
        INDEX_KEY: lambda item: None if item.due_at_ms is None else bucket_of(item.thing),
        "deletes": lambda item: {each.uid: each.version for each in item.deletes} or None,
    },
    upgrade=_upgraded,
)
"""How the table keeps its items."""


def of_device(thing: str, limit: int) -> Selection:
    """Return the selection of a device's items, `limit` in a page."""
    return Selection(PARTITION_KEY, thing, SORT_KEY, limit=limit)


def due_in(bucket: int, now_ms: int, limit: int) -> Selection:
    """Return the selection of the items of a share that are due at `now_ms` (Unix ms), the longest first.

    The index lags: look at an item before believing it.
    """
    key, sort = INDEX_KEY, INDEX_SORT_KEY
    return Selection(key, bucket, sort, until=now_ms, index=INDEX, is_consistent=False, limit=limit)


def pending_for(thing: str, now_ms: int, limit: int) -> Selection:
    """Return the selection of a device's items that wait at `now_ms` (Unix ms), the longest first.

    A page has `limit`. Stored tombstones, which are due when their time is over, do not wait.
    """
    return Selection(
        partition=PARTITION_KEY,
        of=thing,
        sort=INDEX_SORT_KEY,
        until=now_ms + AWAY_MS,
        index=PENDING_INDEX,
        limit=limit,
    )


def one_reset(key: str, thing: str) -> dict[str, Any]:
    """Return the order to begin the versions of a state's key anew on one device.

    The time at which the order was queued numbers the reset.
    """
    return {"reset": {"key": key, "thing": thing}}


def fleet_reset(key: str, *, number: int | None = None, after: str | None = None) -> dict[str, Any]:
    """Return the order for all devices, or those `after` one, once the reset has a `number`."""
    return {"reset": {"key": key, "number": number, "after": after}}


def reset_of(key: str, number: int, things: Sequence[str], after: str | None) -> dict[str, Any]:
    """Return the order for `things` of the fleet, a part of the reset `number`: those `after` one."""
    return {"reset": {"key": key, "number": number, "things": things, "after": after}}
