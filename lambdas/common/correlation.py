"""What follows one event through logs, ledger and archive."""

from __future__ import annotations

from typing import Any

from eventplane.envelope import Envelope
from lambdas.common.queue import QueueMessage


def correlation(message: QueueMessage, event: Envelope | None) -> dict[str, Any]:
    """The members of a log line about `message`, which is `event` or none."""
    return {
        "sender": str(event.sender) if event else None,
        "event_source": event.source if event else None,
        "event_id": event.id if event else None,
        "event_type": event.type if event else None,
        "traceparent": event.attributes.get("traceparent") if event else None,
        "route": message.route,
        "message_id": message.id,
        "attempt": message.attempt,
    }
