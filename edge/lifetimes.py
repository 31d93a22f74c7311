"""How long a delivery is worth making, in milliseconds of the device's life. The wall clock decides nothing.

An event's lifetime is its `expirytime` minus its `time`: both come from one clock, so however wrong that one
is, the difference is right. An `expirytime` without a `time` is left to the cloud, which has a clock to
trust. Time during which the device was switched off counts as 0: it may deliver what has expired, and the
cloud still judges `expirytime`; it never lets expire what has not.
"""

from __future__ import annotations

from edge.spool import Waiting
from eventplane.contract import Channel
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.expiry import BY_CHANNEL, BY_EVENT
from eventplane.timestamps import timestamp_ms


def lifetime_ms(event: Envelope) -> int | None:
    """From the event's `time` to its `expirytime`, at least 0; None when one of the two is missing."""
    time, expirytime = event.attributes.get("time"), event.attributes.get("expirytime")
    if time is None or expirytime is None:
        return None
    return max(0, timestamp_ms(str(expirytime)) - timestamp_ms(str(time)))


def expires_ms(now_ms: int, lifetime: int | None, *channels: Channel) -> int | None:
    """When a delivery over `channels`, stored at `now_ms`, expires by the strictest word; None is never."""
    bounds = [channel.expiry_s * 1000 for channel in channels if channel.expiry_s is not None]
    if lifetime is not None:
        bounds.append(lifetime)
    return now_ms + min(bounds) if bounds else None


def why_expired(waiting: Waiting) -> str:
    """Whose word it was, for the record: the event's or a channel's."""
    try:
        lifetime = lifetime_ms(parse_event(waiting.json))
    except EnvelopeError:  # nothing of ours, or damaged: then it can only have been the channel
        return BY_CHANNEL
    expired_at = waiting.expires_ms
    own = lifetime is not None and expired_at is not None and waiting.stored_ms + lifetime <= expired_at
    return BY_EVENT if own else BY_CHANNEL
