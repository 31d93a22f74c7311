"""How reliable a delivery is, and until when it is worth making: one rule for all who decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventplane.contract import Channel, Contract, DeliveryGuarantee, Route
from eventplane.envelope import Envelope
from eventplane.plane_types import PLANE_TYPES
from eventplane.values import timestamp_ms

DELIVERY_GUARANTEE: Final = "deliveryguarantee"
"""The attribute by which an event asks for less; `eventplane.attributes` accepts `best_effort` only."""

GUARANTEE_HINT: Final = "guarantee"
"""The hint on a queue message by which a router tells a webhook's function that it is at best effort."""

FAILED: Final = "best_effort_failed"
"""Why a router dropped a delivery: it was tried once, and the destination did not take it in time."""

NOT_REPEATED: Final = "best_effort_not_repeated"
"""Why a router dropped a delivery: its message was received again, and best effort is tried only once."""

DROP_REASONS: Final = (FAILED, NOT_REPEATED)
"""The reasons that only a delivery at best effort can have."""

BY_EVENT: Final = "expirytime"
BY_CHANNEL: Final = "channel_expiry"
"""The reasons of an expiry: what the event says, or what a channel it takes says."""


def decide(
    channels: Iterable[DeliveryGuarantee],
    asked: DeliveryGuarantee | None,
    route: DeliveryGuarantee | None,
    event_type: DeliveryGuarantee | None,
) -> DeliveryGuarantee:
    """Decide the guarantee of a delivery from what is declared; None where nothing is.

    Best effort if one of the `channels`, or the event itself (`asked`), says so. Otherwise what the `route`
    declares, otherwise what the `event_type` declares, otherwise at least once.
    """
    if DeliveryGuarantee.BEST_EFFORT in (*channels, asked):
        return DeliveryGuarantee.BEST_EFFORT
    return route or event_type or DeliveryGuarantee.AT_LEAST_ONCE


def asks_best_effort(event: Envelope) -> bool:
    """Return whether the event itself asks for best effort."""
    return event.attributes.get(DELIVERY_GUARANTEE) == DeliveryGuarantee.BEST_EFFORT


def at_best_effort(event: Envelope) -> Envelope:
    """Return the event with the attribute by which it asks for best effort."""
    if asks_best_effort(event):
        return event
    return event.stamped(**{DELIVERY_GUARANTEE: DeliveryGuarantee.BEST_EFFORT})


def guarantee_of(contract: Contract, event: Envelope, over: Channel, route: Route) -> DeliveryGuarantee:
    """Decide the guarantee of delivering an `event` that came in `over` a channel, on a `route`.

    The plane's own reports are delivered at least once, whatever their channels and routes declare.
    """
    return guarantee_of_type(contract, event.type, asks_best_effort(event), over, route)


def guarantee_of_type(
    contract: Contract, event_type: str, asks: bool, over: Channel, route: Route
) -> DeliveryGuarantee:
    """Decide as `guarantee_of` by an event's type and whether it asks for best effort."""
    if event_type in PLANE_TYPES:
        return DeliveryGuarantee.AT_LEAST_ONCE
    declared = contract.event_types.get(event_type)
    return decide(
        (over.delivery_guarantee, contract.channel(route.destination).delivery_guarantee),
        DeliveryGuarantee.BEST_EFFORT if asks else None,
        route.delivery_guarantee,
        declared.delivery_guarantee if declared else None,
    )


def is_promised(contract: Contract, event: Envelope, over: Channel, route: Route) -> bool:
    """Return whether that delivery is at least once; parameters as of `guarantee_of`."""
    return guarantee_of(contract, event, over, route) is DeliveryGuarantee.AT_LEAST_ONCE


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
