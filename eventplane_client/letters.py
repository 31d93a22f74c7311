"""Dead letters of a reader: events of the plane, sent through its own outbox like everything it sends."""

from __future__ import annotations

import hashlib
from datetime import datetime

from eventplane.dead_letter import LETTER_ID_DIGITS, Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope
from eventplane.sqs_binding import redriven_id
from eventplane.values import timestamp
from eventplane_client.ports import Message

SOURCE = "/eventplane/client/"
"""What the `source` of the letters starts with; the participant's name follows."""

UNKNOWN_VERSION = "unknown"


def letter(
    participant: str, message: Message, event: Envelope | None, refusal: Refusal, now: datetime
) -> Envelope:
    """Return the dead letter of what `participant` cannot handle; the same id until it is redriven."""
    id = letter_id(*event.key) if event else hashlib.sha256(message.body).hexdigest()[:LETTER_ID_DIGITS]
    return dead_letter(
        id=redriven_id(id, message.redrive),
        source=f"{SOURCE}{participant}",
        time=timestamp(now),
        refusal=refusal,
        channel=f"{participant}.inbox",
        original=message.body,
        # A reader has no contract; the ledger knows by which version the event came.
        contract_version=UNKNOWN_VERSION,
        route=message.route,
        attempt=message.attempt,
        event=event,
        sender=event.sender if event else None,
    )
