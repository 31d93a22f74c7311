"""A channel's settings in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventplane.contract import (
    Channel,
    DeliveryGuarantee,
    Downlink,
    Forward,
    Ordering,
    Priority,
    Reach,
    Transport,
    WhenFull,
)

_TRANSPORTS: Final[dict[str, str]] = {
    Transport.MQTT: "MQTT in the home",
    Transport.IOT_CORE: "MQTT over AWS IoT Core",
    Transport.SQS: "SQS",
    Transport.SQS_FIFO: "SQS, FIFO",
}
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def settings_text(channel: Channel) -> str:
    """What the channel promises, and how its events travel."""
    said = [
        "HTTPS (a webhook)" if channel.webhook else _transport(channel),
        guarantee_text(channel.delivery_guarantee),
        f"priority {channel.priority}",
    ]
    if channel.transport in (Transport.SQS, Transport.SQS_FIFO):
        said.append(f"kept {duration(channel.retention_s)}")
    return ", ".join([*said, *_special(channel)])


def _transport(channel: Channel) -> str:
    # What a package adds has no other name here.
    return _TRANSPORTS.get(channel.transport, channel.transport)


def special_text(channel: Channel) -> str:
    """The settings that most channels do not have; '' for one of the usual kind."""
    said = []
    if channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT:
        said.append(guarantee_text(channel.delivery_guarantee))
    if channel.priority is not Priority.NORMAL:
        said.append(channel.priority)
    if channel.webhook:
        said.append(f"a webhook, {channel.webhook.mode}")
    return ", ".join([*said, *_special(channel)])


def guarantee_text(guarantee: DeliveryGuarantee) -> str:
    """How reliable a delivery is."""
    return guarantee.replace("_", " ")


def reach_text(reach: Reach | tuple[str, ...]) -> str:
    """Which devices a participant may address."""
    if isinstance(reach, Reach):
        return {Reach.ONE: "one device at a time", Reach.EVERYONE: "every device, groups and all at once"}[
            reach
        ]
    return f"the groups {', '.join(reach)} and the devices in them"


def duration(seconds: int) -> str:
    """Seconds in the largest unit that divides them."""
    for size, unit in _UNITS:
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _delay(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds % 1_000 else duration(milliseconds // 1_000)


def _special(channel: Channel) -> Iterator[str]:
    if channel.ordering is Ordering.SOURCE:
        yield "in the order of its source"
    if channel.expiry_s:
        yield f"expires after {duration(channel.expiry_s)}"
    if channel.batching_delay_ms:
        yield f"waits up to {_delay(channel.batching_delay_ms)} for a batch"
    if channel.events_per_message > 1:
        yield f"up to {channel.events_per_message} events a message"
    if channel.receipts:
        yield "confirmed after handling"
    if channel.when_full is WhenFull.DROP_OLDEST:
        yield "drops the oldest when full"
    if channel.downlink is Downlink.STATE:
        yield "events go down as state"
    if channel.forward is Forward.WANTED:
        yield "takes up what the cloud wants"
