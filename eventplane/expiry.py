"""When an event is no longer worth delivering: by its `expirytime`, or by the channels that it takes."""

from __future__ import annotations

from typing import Final

from eventplane.contract import Channel
from eventplane.envelope import Envelope
from eventplane.timestamps import timestamp_ms

BY_EVENT: Final = "expirytime"
BY_CHANNEL: Final = "channel_expiry"
"""The reasons of an expiry: what the event says, or what a channel it takes says."""


def is_expired(event: Envelope, now_ms: int) -> bool:
    """Whether `event` has an `expirytime`, and it is not later than `now_ms` (Unix milliseconds)."""
    expirytime = event.attributes.get("expirytime")
    return expirytime is not None and timestamp_ms(str(expirytime)) <= now_ms


def is_expired_on_device(event: Envelope, now_ms: int, uptime_ms: int) -> bool:
    """Whether `event` has expired by the clock of a device that has been up for `uptime_ms` milliseconds.

    The clock may have been set since the event was written, as when a device without a battery starts. So
    only an event whose `time` lies within the uptime can have expired: time switched off counts as 0.
    """
    time = event.attributes.get("time")
    if time is None or not is_expired(event, now_ms):
        return False
    return timestamp_ms(str(time)) >= now_ms - uptime_ms


def why_expired(event: Envelope, now_ms: int, accepted_at_ms: int, *channels: Channel) -> str | None:
    """Why `event` is not to be delivered over `channels` any more, None while it is; times in Unix ms.

    A channel's `expiry_s` counts from `accepted_at_ms`, when the event came to the place that decides.
    """
    if is_expired(event, now_ms):
        return BY_EVENT
    bound_ms = channel_expiry_ms(*channels)
    return BY_CHANNEL if bound_ms is not None and accepted_at_ms + bound_ms <= now_ms else None


def channel_expiry_ms(*channels: Channel) -> int | None:
    """How long an event is worth delivering over `channels`, milliseconds; None for ever."""
    bounds = (channel.expiry_s for channel in channels if channel.expiry_s is not None)
    strictest = min(bounds, default=None)
    return None if strictest is None else 1_000 * strictest
