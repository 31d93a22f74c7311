"""The words of presence: who watches the devices, what it says of them, how they are shared out to sweeps."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

TABLE: Final = "presence"
"""The table of devices, without project and environment; its key is `device`."""

MONITOR: Final = "presence-monitor"
"""The participant that watches: its inbox takes heartbeats, its outbox carries the events below."""

CONNECTED: Final = "org.eventplane.device.connected.v1"
DISCONNECTED: Final = "org.eventplane.device.disconnected.v1"
QUIET: Final = "org.eventplane.device.quiet.v1"
RECOVERED: Final = "org.eventplane.device.recovered.v1"
FLOODING: Final = "org.eventplane.device.flooding.v1"
NOTICE: Final = "org.eventplane.notice.carer.v1"

BUCKETS: Final = 16
"""Shares of the devices, each a partition of the due index. Ours: a partition takes 1,000 writes a second
(DynamoDB Developer Guide), of which a million devices need a tenth. Never change it: what is filed under a
share that is gone would not be found."""

PRESENCE_TOPICS: Final = "$aws/events/presence/+/#"
"""Where IoT Core tells of connections and their ends (AWS IoT Developer Guide, lifecycle events)."""


def gone_request(table: str, device: str) -> dict[str, Any]:
    """The arguments of UpdateItem after which nothing is said of `device` any more, whatever is still heard.

    The item stays: the end of its connection comes later than any deletion, and would make it known anew.
    """
    return {
        "TableName": table,
        "Key": {"device": {"S": device}},
        "UpdateExpression": "SET known = :gone REMOVE #bucket, due_ms ADD revision :one",
        "ExpressionAttributeNames": {"#bucket": "bucket"},  # a reserved word
        "ExpressionAttributeValues": {":gone": {"S": json.dumps({"is_gone": True})}, ":one": {"N": "1"}},
    }


def bucket_of(device: str) -> int:
    """The share that `device` belongs to, from 0 to `BUCKETS` - 1."""
    return zlib.crc32(device.encode("utf-8")) % BUCKETS
