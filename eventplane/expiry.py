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


def why_expired(event: Envelope, now_ms: int, accepted_at_ms: int, *channels: Channel) -> str | None:
    """Why `event` is not to be delivered over `channels` any more, None while it is; times in Unix ms.

    A channel's `expiry_s` counts from `accepted_at_ms`, when the event came to the place that decides.
    """
    if is_expired(event, now_ms):
        return BY_EVENT
    bounds = (channel.expiry_s for channel in channels if channel.expiry_s is not None)
    return BY_CHANNEL if any(accepted_at_ms + 1_000 * bound <= now_ms for bound in bounds) else None
