"""Names of events in whatever contains them, and the senders of what the tap has.

`source` and `id` are a claim: several senders can make the same one.
"""

from __future__ import annotations

import base64
import json

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import ACKNOWLEDGED
from eventplane.downlink.device import Acknowledgement, AcknowledgementError, from_data
from eventplane.envelope import Envelope, Sender, parse_event, sender_in_frame
from eventplane.errors import EnvelopeError
from eventplane.sending import stamp_sender
from operations.archive import Record

Claim = tuple[str, str]
"""`source` and `id` of an event."""


def names_in(text: bytes | str) -> Claim | None:
    """The `source` and `id` that a text has, if it is JSON that has them; it need not be a valid event."""
    try:
        members = json.loads(text)
        source, id = members["source"], members["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return (source, id) if isinstance(source, str) and isinstance(id, str) else None


def names_in_letter(text: str) -> Claim | None:
    """The `source` and `id` in the original of a dead-letter event, if it has them."""
    try:
        members = json.loads(text)
        if members["type"] != DEAD_LETTER_TYPE:
            return None
        return names_in(base64.b64decode(members["data"]["original_base64"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def answers_in(text: str) -> tuple[Acknowledgement, ...]:
    """The answers of a device to events that came down to it, if the text is an event that has them."""
    if ACKNOWLEDGED not in text:
        return ()
    try:
        event = parse_event(text)
        return from_data(event.data())[0] if event.type == ACKNOWLEDGED else ()
    except (EnvelopeError, AcknowledgementError):
        return ()


def sender_in_tap(row: Record) -> Sender:
    """Return who sent what a row of the tap has: the device, and the service that it vouches for."""
    members = json.loads(row["event"]) if row["event"] is not None else {}
    return sender_in_frame(row["client_id"], members)


def event_in_tap(row: Record) -> Envelope:
    """Return the event of a row of the tap, stamped as the router stamps it. Raises `EnvelopeError`."""
    event = parse_event(row["event"])
    return stamp_sender(event, sender_in_frame(row["client_id"], event.attributes))
