"""The events of these benchmarks: 512 bytes, with a payload that does not shrink to nothing."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final

SIZE: Final = 512
"""Bytes of an event."""

DOOR: Final = "org.eventplane.activity.door.v1"
"""The contract routes it to two inboxes, as it does an alarm."""
ALARM: Final = "org.eventplane.alarm.keyword.v1"

DOOR_INBOXES: Final = ("care-analytics", "family-app")
ALARM_INBOXES: Final = ("alarm-centre", "family-app")

_DATA: Final = {DOOR: {"state": "opened"}, ALARM: {"keyword": "help", "room": "bath"}}


def event(id: str, type: str = DOOR) -> str:
    """The text of one event of `SIZE` bytes."""
    document = {
        "specversion": "1.0",
        "id": id,
        "source": "/homes/1/activity-service",
        "type": type,
        "subject": "/homes/1/rooms/hall",
        "time": "2026-01-01T00:00:00.000Z",
        "datacontenttype": "application/json",
        "data": {**_DATA[type], "note": ""},
    }
    missing = SIZE - len(_compact(document))
    # Half of it is noise: real readings shrink to a tenth to a fifth.
    noise = sha256(id.encode()).hexdigest()[: missing // 4]
    document["data"]["note"] = noise.ljust(missing, "-")  # type: ignore[index]
    return _compact(document)


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
