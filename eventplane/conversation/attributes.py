"""The attributes by which a request and its replies find each other."""

from __future__ import annotations

from typing import Final

REPLY_TO: Final = "replyto"
"""Of both: the participant that asks."""

REPLY_DEVICE: Final = "replydevice"
"""Of a request from a device: which one; a reply from the cloud goes down to it."""

CORRELATION_ID: Final = "correlationid"
"""Of both: unique to the request."""

CAUSATION_ID: Final = "causationid"
"""Of a reply: the `id` of the request."""

EXPIRY_TIME: Final = "expirytime"
"""Of both: when the asker is gone."""

REPLY_TYPE: Final = "org.eventplane.conversation.reply.v1"
"""The `type` of every reply."""
