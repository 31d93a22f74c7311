"""A contract in a few lines, for the person who has just changed it, and a channel's settings in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    Downlink,
    Forward,
    Ordering,
    Place,
    Priority,
    Problem,
    Reach,
    SchemaCheck,
    Transport,
    WhenFull,
)
from eventplane.filters import filter_text

_PLACES = {Place.DEVICE: "on the device", Place.CLOUD: "in the cloud"}


def summary(contract: Contract) -> str:
    """What the contract says, a line a participant, a box with settings of its own, and a route."""
    lines = [f"{contract.name}, version {contract.version}", "participants"]
    for each in contract.participants.values():
        description = f"(retired) {each.description}" if each.retired else each.description
        lines.append(f"  {each.kind:<15} {each.name:<18} {description}")
        said = {box.box: special_text(box) for box in (each.inbox, each.outbox)}
        lines += [f"{'':19}{box}: {text}" for box, text in said.items() if text]
        if each.asks:
            lines.append(f"{'':19}asks: {', '.join(each.asks)}")
        if each.may_subscribe is not None:
            lines.append(f"{'':19}may subscribe: {filter_text(each.may_subscribe)}")
        if each.may_address is not Reach.ONE:
            lines.append(f"{'':19}may address: {reach_text(each.may_address)}")
    lines.append(f"event types: {len(contract.event_types)}")
    lines += [
        f"  {each.name}: payload checked ({each.schema_check})"
        for each in contract.event_types.values()
        if each.schema_check is not SchemaCheck.NONE
    ]
    lines += [
        f"  {each.name}: goes down as {each.downlink}"
        for each in contract.event_types.values()
        if each.downlink
    ]
    lines += [
        f"  {each.name}: {guarantee_text(each.delivery_guarantee)}, unless its route declares otherwise"
        for each in contract.event_types.values()
        if each.delivery_guarantee
    ]
    for place, where in _PLACES.items():
        if contract.routes_at(place):
            lines.append(f"routes decided {where}")
        for route in contract.routes_at(place):
            promised = f", {guarantee_text(route.delivery_guarantee)}" if route.delivery_guarantee else ""
            lines.append(f"  {route.name} -> {route.destination}{promised}")
            lines.append(f"      {filter_text(route.filter)}")
    return "\n".join(lines)


def warnings_text(warnings: Sequence[Problem]) -> str:
    """The warnings, one below the other; '' when there are none."""
    if not warnings:
        return ""
    count = f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"
    return "\n".join([count, *(f"  {each}" for each in warnings)])


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
