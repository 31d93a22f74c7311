"""The attributes that the device puts in front of every event it stores, to count and sort it by."""

from __future__ import annotations

from collections.abc import Mapping

from eventplane.envelope import TOO_LARGE, Envelope, EnvelopeError, reserved
from eventplane.limits import MAX_SENT_EVENT_BYTES, MAX_UPLINK_EVENT_BYTES
from eventplane.numbering import EPOCH, ORDER, ORDER_EPOCH, SEQUENCE, SEQUENCE_DIGITS
from eventplane.ordering import positions_text


def stamp(event: Envelope, epoch: str, sequence: int) -> Envelope:
    """`event` with its epoch and number.

    Raises `EnvelopeError`: `reserved_attribute` when it already carries one of the names, or a position in an
    inbox, `too_large` when the stamped event would exceed what readers accept.
    """
    for name in (ORDER, ORDER_EPOCH):
        if name in event.attributes:
            raise reserved(name)
    return _checked(event.stamped(**{EPOCH: epoch, SEQUENCE: f"{sequence:0{SEQUENCE_DIGITS}d}"}))


def stamp_positions(event: Envelope, positions: Mapping[str, int]) -> Envelope:
    """A stamped `event` with its `positions` in ordered inboxes. Raises `EnvelopeError`: `too_large`."""
    return _checked(event.stamped(**{ORDER: positions_text(positions)})) if positions else event


def _checked(stamped: Envelope) -> Envelope:
    size = len(stamped.json.encode("utf-8"))
    if size > MAX_UPLINK_EVENT_BYTES:
        raise EnvelopeError(
            TOO_LARGE,
            f"{size} bytes once numbered, at most {MAX_UPLINK_EVENT_BYTES} go up; "
            f"send at most {MAX_SENT_EVENT_BYTES}",
        )
    return stamped
