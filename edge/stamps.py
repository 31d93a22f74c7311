"""The attributes that the device puts in front of every event it stores, so that the audit can count them."""

from __future__ import annotations

from eventplane.envelope import TOO_LARGE, Envelope, EnvelopeError
from eventplane.limits import MAX_SENT_EVENT_BYTES, MAX_UPLINK_EVENT_BYTES
from eventplane.numbering import EPOCH, SEQUENCE, SEQUENCE_DIGITS


def stamp(event: Envelope, epoch: str, sequence: int) -> Envelope:
    """`event` with its epoch and number.

    Raises `EnvelopeError`: `reserved_attribute` when it already carries one of the names, `too_large` when
    the stamped event would exceed what readers accept.
    """
    stamped = event.stamped(**{EPOCH: epoch, SEQUENCE: f"{sequence:0{SEQUENCE_DIGITS}d}"})
    size = len(stamped.json.encode("utf-8"))
    if size > MAX_UPLINK_EVENT_BYTES:
        raise EnvelopeError(
            TOO_LARGE,
            f"{size} bytes once numbered, at most {MAX_UPLINK_EVENT_BYTES} go up; "
            f"send at most {MAX_SENT_EVENT_BYTES}",
        )
    return stamped
