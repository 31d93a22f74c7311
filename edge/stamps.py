"""What the device writes in front of every event it takes over, so that the audit can count them."""

from __future__ import annotations

from eventplane.envelope import Envelope, EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES

EPOCH = "deviceepoch"
"""Names one life of the spool: it changes only when the device's state was lost."""

SEQUENCE = "devicesequence"
"""The event's number within the epoch, from 1 without gaps, zero-padded so that text sorts like numbers."""

SEQUENCE_DIGITS = 12


def stamp(event: Envelope, epoch: str, sequence: int) -> Envelope:
    """`event` with its epoch and number.

    Raises `EnvelopeError`: `reserved_attribute` when it already carries one of the names, `too_large` when
    the stamped event would exceed what readers accept.
    """
    stamped = event.stamped(**{EPOCH: epoch, SEQUENCE: f"{sequence:0{SEQUENCE_DIGITS}d}"})
    size = len(stamped.json.encode("utf-8"))
    if size > MAX_EVENT_BYTES:
        raise EnvelopeError(
            "too_large", f"{size} bytes once numbered; an event has at most {MAX_EVENT_BYTES}"
        )
    return stamped
