"""What the columns of the archive's tables mean; one name means the same in every table."""

from __future__ import annotations

from typing import Final

MEANINGS: Final = {
    "accepted_at_ms": "when IoT Core accepted it, Unix milliseconds",
    "archived_at_ms": "when the archive writer wrote it, Unix milliseconds",
    "client_id": "the device's MQTT client id",
    "topic": "the MQTT topic it came over",
    "message_id": "the queue message it stood in",
    "index": "its place in that message, from 0",
    "event": "the event's exact JSON text; null for what is no event",
    "original_base64": "the bytes of what is no event",
    "refusal": "why it is no event",
    "decided_at_ms": "when it was decided, Unix milliseconds",
    "entered_at_ms": "when it entered the channel, Unix milliseconds",
    "entered_by": "the channel the event came over",
    "contract_version": "the contract in force",
    "source": "the event's source; empty or null for what is no event",
    "id": "the event's id; empty or null for what is no event",
    "type": "the event's type; empty or null for what is no event",
    "priority": "how urgent the event was",
    "route": "the route taken; null for an unrouted or refused event",
    "destination": "the channel it leads to",
    "outcome": "what became of the event",
    "reason": "why it did",
    "attempt": "deliveries of the queue message, from 1",
    "channel": "the inbox it was taken from",
    "status": "the endpoint's last HTTP status",
    "detail": "the reason at length",
    "body": "the message as it was",
    "kind": "what was found",
    "hop": "where on the way: `device_cloud`, `router`, `inbox_consumer`",
    "device": "the device's client id",
    "epoch": "the device's `deviceepoch`",
    "sequence": "the device's `devicesequence`; null where there is none",
    "at_ms": "when it was, Unix milliseconds",
    "line": "the line's number in the object, from 1",
    "text": "the row's text, cut",
    "archive_file": "the object it stands in, from the archive's root",
    "line_text": "the line itself, where the columns do not hold all of it",
    "is_copy": "whether an earlier row is the same one, written twice",
}
"""By the column's name."""
