"""A request: an event that says who asks, and until when."""

from __future__ import annotations

from eventplane.contract import DeliveryGuarantee
from eventplane.conversation.attributes import (
    CORRELATION_ID,
    EXPIRY_TIME,
    REPLY_DEVICE,
    REPLY_TO,
    REPLY_TYPE,
)
from eventplane.envelope import Envelope
from eventplane.guarantee import DELIVERY_GUARANTEE


def write_request(
    event: Envelope,
    *,
    asker: str,
    device: str | None,
    correlation_id: str,
    deadline: str | None,
    now: str,
    durable: bool = True,
) -> Envelope:
    """`event` as a request of `asker`, on `device` or (None) in the cloud; its own text stays as it is.

    One that is not `durable` is delivered at best effort: nobody keeps it for a reader that is away.

    At `deadline` it expires, so that nobody works for an asker that is gone; None for an event that is worth
    handling anyway. One that expires by its own word keeps that, and one without a `time` gets `now`, since a
    device counts an expiry from it; both are RFC 3339. Raises `EnvelopeError` for a request.
    """
    added = {REPLY_TO: asker, CORRELATION_ID: correlation_id}
    if device is not None:
        added[REPLY_DEVICE] = device
    if deadline is not None and EXPIRY_TIME not in event.attributes:
        added[EXPIRY_TIME] = deadline
        if "time" not in event.attributes:
            added["time"] = now
    if not durable:
        added[DELIVERY_GUARANTEE] = DeliveryGuarantee.BEST_EFFORT
    return event.stamped(**added)


def is_request(event: Envelope) -> bool:
    """Whether somebody waits for a reply to `event`."""
    # A reply has the attributes of its request; whoever reads one in its inbox must not answer it.
    return REPLY_TO in event.attributes and CORRELATION_ID in event.attributes and event.type != REPLY_TYPE
