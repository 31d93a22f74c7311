"""A channel's settings in words."""

from __future__ import annotations

from typing import Final

from eventplane.contract import Channel, DeliveryGuarantee, Downlink, Ordering, Transport, WhenFull

_TRANSPORTS: Final = {
    Transport.MQTT: "MQTT in the home",
    Transport.IOT_CORE: "MQTT over AWS IoT Core",
    Transport.SQS: "SQS",
    Transport.SQS_FIFO: "SQS, FIFO",
}
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def settings_text(channel: Channel) -> str:
    """What the channel promises, and how its events travel."""
    best_effort = channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
    said = [
        "HTTPS (a webhook)" if channel.webhook else _TRANSPORTS[channel.transport],
        "best effort" if best_effort else "at least once",
        f"priority {channel.priority}",
        "in the order of its source" if channel.ordering is Ordering.SOURCE else "",
        f"expires after {duration(channel.expiry_s)}" if channel.expiry_s else "",
        f"waits up to {channel.batching_delay_ms} ms for a batch" if channel.batching_delay_ms else "",
        f"kept {duration(channel.retention_s)}" if _is_queue(channel) else "",
        "confirmed after handling" if channel.receipts else "",
        "drops the oldest when full" if channel.when_full is WhenFull.DROP_OLDEST else "",
        "events go down as state" if channel.downlink is Downlink.STATE else "",
    ]
    return ", ".join(each for each in said if each)


def duration(seconds: int) -> str:
    """Seconds in the largest unit that divides them."""
    for size, unit in _UNITS:
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _is_queue(channel: Channel) -> bool:
    return channel.transport in (Transport.SQS, Transport.SQS_FIFO)
