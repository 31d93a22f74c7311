"""The guarantee and the expiry of a delivery: one rule for device, cloud and audit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventplane.contract import Channel, Contract, DeliveryGuarantee, Route
from eventplane.device_reports import PLANE_TYPES
from eventplane.envelope import Envelope
from eventplane.names import DELIVER_BY, EXPIRY_TIME, SENT_TIME, UPTIME_LIMIT
from eventplane.values import timestamp_ms, timestamp_of_ms

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

BY_EVENT: Final = EXPIRY_TIME
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


def lifetime_ms(event: Envelope) -> int | None:
    """Return the milliseconds that `event` had left when the hop before sent it; None where that is unknown.

    They are `expirytime` minus `senttime`, or else `time`, and at least 0: all of one clock, so that the
    difference is right however wrong the clock is.
    """
    expires = time_of(event, EXPIRY_TIME)
    if expires is None:
        return None
    since = time_of(event, SENT_TIME if SENT_TIME in event.attributes else "time")
    return None if since is None else max(0, expires - since)


def with_sent_time(event: Envelope, left_ms: int) -> Envelope:
    """Return `event` with a `senttime` that says it has `left_ms` left; as it is without an expiry."""
    expires = time_of(event, EXPIRY_TIME)
    if expires is None:
        return event
    return event.with_attributes({SENT_TIME: timestamp_of_ms(expires - left_ms)})


def is_expired(event: Envelope, now_ms: int) -> bool:
    """Return whether `event` has expired at `now_ms` (Unix milliseconds) of the clock of its times."""
    ends_ms = time_of(event, DELIVER_BY if DELIVER_BY in event.attributes else EXPIRY_TIME)
    return ends_ms is not None and ends_ms <= now_ms


def time_of(event: Envelope, name: str) -> int | None:
    value = event.attributes.get(name)
    return None if value is None else timestamp_ms(str(value))


def with_uptime_limit(event: Envelope, boot: str, limit_ms: int) -> Envelope:
    """Return `event` with the uptime, milliseconds, of the `boot` of a device at which it expires."""
    return event.with_attributes({UPTIME_LIMIT: f"{limit_ms} {boot}"})
