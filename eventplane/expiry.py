"""When an event is no longer worth delivering: by its `expirytime`, or by the channels that it takes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from eventplane.contract import Channel
from eventplane.envelope import Envelope

BY_EVENT: Final = "expirytime"
BY_CHANNEL: Final = "channel_expiry"
"""The reasons of an expiry: what the event says, or what a channel it takes says."""

_LEAP_SECOND = re.compile(r"(:\d\d):60")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


def timestamp_ms(value: str) -> int:
    """Unix milliseconds of an RFC 3339 timestamp that the envelope has checked; finer digits are cut."""
    text, leaps = _LEAP_SECOND.subn(r"\1:59", value.upper())
    # Differences only: a sum could leave the years that a datetime has, a float would round.
    elapsed = datetime.fromisoformat(text) - _EPOCH + timedelta(seconds=leaps)
    return elapsed // timedelta(milliseconds=1)


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
