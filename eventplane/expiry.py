"""When an event expires at a hop, and why: for the cloud, the audit and the readers of inboxes.

The forwarder counts lifetimes by its uptime (`edge.numbering`).
"""

from __future__ import annotations

from eventplane.contract import Channel
from eventplane.envelope import Envelope
from eventplane.guarantee import BY_CHANNEL, BY_EVENT, lifetime_ms, time_of
from eventplane.names import DELIVER_BY, EXPIRY_TIME, UPTIME_LIMIT
from eventplane.values import MAX_TIME_MS


def expires_at_ms(event: Envelope, accepted_at_ms: int) -> int | None:
    """Return when `event`, accepted at `accepted_at_ms`, expires by the clock of the acceptance; None: never.

    Both in Unix milliseconds. Its lifetime counts from the acceptance, unless a router has said `deliverby`.
    Where the lifetime is unknown its `expirytime` counts, which is all that there is.
    """
    if EXPIRY_TIME not in event.attributes:
        return None
    if DELIVER_BY in event.attributes:
        return time_of(event, DELIVER_BY)
    lifetime = lifetime_ms(event)
    return time_of(event, EXPIRY_TIME) if lifetime is None else min(accepted_at_ms + lifetime, MAX_TIME_MS)


def why_expired(event: Envelope, now_ms: int, accepted_at_ms: int, *channels: Channel) -> str | None:
    """Return why `event` is not to be delivered over `channels` any more, None while it is; times in Unix ms.

    Its lifetime and a channel's `expiry_s` count from `accepted_at_ms`, when the event came to the place that
    decides; `now_ms` is of the same clock.
    """
    return why_over(expires_at_ms(event, accepted_at_ms), now_ms, accepted_at_ms, *channels)


def why_over(ends_ms: int | None, now_ms: int, accepted_at_ms: int, *channels: Channel) -> str | None:
    """Return as `why_expired` for an event that expires at `ends_ms`; None: never."""
    if ends_ms is not None and ends_ms <= now_ms:
        return BY_EVENT
    bound_ms = channel_expiry_ms(*channels)
    return BY_CHANNEL if bound_ms is not None and accepted_at_ms + bound_ms <= now_ms else None


def channel_expiry_ms(*channels: Channel) -> int | None:
    """Return the lifetime of an event over `channels`, milliseconds; None for ever."""
    bounds = (channel.expiry_s for channel in channels if channel.expiry_s is not None)
    strictest = min(bounds, default=None)
    return None if strictest is None else 1_000 * strictest


def is_expired_on_device(event: Envelope, boot: str, uptime_ms: int) -> bool:
    """Return whether `event` has expired on a device that has been up for `uptime_ms` since `boot`.

    Its forwarder says until when, by the one clock that all programs of a boot share, and that cannot be set.
    Time before this boot counts as 0, as does what another machine says. Without a limit only what had no
    lifetime at all has expired.
    """
    if UPTIME_LIMIT not in event.attributes:
        return lifetime_ms(event) == 0
    limit, _, of_boot = str(event.attributes[UPTIME_LIMIT]).partition(" ")
    return limit.isdecimal() and of_boot == boot and int(limit) <= uptime_ms
