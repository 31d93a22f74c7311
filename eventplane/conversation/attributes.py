"""The attributes that link a request and its replies."""

from __future__ import annotations

from typing import Final

REPLY_TO: Final = "replyto"
"""Of requests and replies: the participant that asks."""

REPLY_DEVICE: Final = "replydevice"
"""Of a request from a device: the device; a reply from the cloud is sent down to it."""

CORRELATION_ID: Final = "correlationid"
"""Of requests and replies: unique to the request."""

CAUSATION_ID: Final = "causationid"
"""Of a reply: the `id` of the request."""

EXPIRY_TIME: Final = "expirytime"
"""Of requests and replies: when the asker stops waiting."""

REPLY_TYPE: Final = "org.eventplane.conversation.reply.v1"
"""The `type` of every reply."""
