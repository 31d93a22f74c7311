"""A contract as text: a summary for the person who has just changed it, and a channel's settings in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eventplane.contract import (
    ALL_PERCENT,
    AddressScope,
    Channel,
    Contract,
    DeliveryGuarantee,
    Downlink,
    EventType,
    Forward,
    Ordering,
    Place,
    Priority,
    Problem,
    SchemaCheck,
    Transport,
    WhenFull,
)
from eventplane.filter_texts import filter_text
from eventplane.reach import Flow, flows


def summary(contract: Contract) -> str:
    """Return a line for each participant, each channel with settings of its own, and each route."""
    lines = [f"{contract.name}, version {contract.version}", "participants"]
    for each in contract.participants.values():
        description = f"(retired) {each.description}" if each.retired else each.description
        lines.append(f"  {each.kind:<15} {each.name:<18} {description}")
        parts = {box.box: special_text(box) for box in (each.inbox, each.outbox)}
        lines += [f"{'':19}{box}: {text}" for box, text in parts.items() if text]
        if each.asks:
            lines.append(f"{'':19}asks: {', '.join(each.asks)}")
        if each.may_subscribe is not None:
            lines.append(f"{'':19}may subscribe: {filter_text(each.may_subscribe)}")
        if each.may_address is not AddressScope.ONE:
            lines.append(f"{'':19}may address: {scope_text(each.may_address)}")
    lines.append(f"event types: {len(contract.event_types)}")
    for event_type, flow in zip(contract.event_types.values(), flows(contract).values(), strict=True):
        lines.append(f"  {event_type.name}: {'; '.join([_flow_text(flow), *_type_settings(event_type)])}")
    for place in Place:
        if contract.routes_at(place):
            lines.append(f"routes decided {place.where}")
        for route in contract.routes_at(place):
            promised = f", {guarantee_text(route.delivery_guarantee)}" if route.delivery_guarantee else ""
            lines.append(f"  {route.name} -> {route.destination}{promised}")
            lines.append(f"      {filter_text(route.filter)}")
    return "\n".join(lines)


def _flow_text(flow: Flow) -> str:
    """Who sends events of a type, who receives them, and whether always."""
    always = dict.fromkeys(way.channel.participant for way in flow.ways if way.is_certain)
    may = dict.fromkeys(way.channel.participant for way in flow.ways)
    receivers = [f"{each} ({'always' if each in always else 'may'})" for each in may]
    senders = [each.name for each in flow.senders]
    return f"from {', '.join(senders) or 'undeclared senders'} to {', '.join(receivers) or 'nobody'}"


def _type_settings(event_type: EventType) -> Iterator[str]:
    if event_type.schema_check is not SchemaCheck.NONE:
        yield f"payload checked ({event_type.schema_check})"
    if event_type.downlink:
        yield f"goes down as {event_type.downlink}"
    if event_type.delivery_guarantee:
        yield f"{guarantee_text(event_type.delivery_guarantee)}, unless its route declares otherwise"


def warnings_text(warnings: Sequence[Problem]) -> str:
    """Return the warnings, a line each; '' when there are none."""
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
    """Return the channel's guarantee, and how its events are carried."""
    parts = [
        "HTTPS (a webhook)" if channel.webhook else _transport(channel),
        guarantee_text(channel.delivery_guarantee),
        f"priority {channel.priority}",
    ]
    if channel.transport in (Transport.SQS, Transport.SQS_FIFO):
        parts.append(f"kept {duration(channel.retention_s)}")
    return ", ".join([*parts, *_special(channel)])


def _transport(channel: Channel) -> str:
    # A protocol of a package has no other name here.
    return _TRANSPORTS.get(channel.transport, channel.transport)


def special_text(channel: Channel) -> str:
    """Return the settings that differ from their defaults; '' where none does."""
    parts = []
    if channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT:
        parts.append(guarantee_text(channel.delivery_guarantee))
    if channel.priority is not Priority.NORMAL:
        parts.append(channel.priority)
    if channel.webhook:
        parts.append(f"a webhook, {channel.webhook.mode}")
    return ", ".join([*parts, *_special(channel)])


def guarantee_text(guarantee: DeliveryGuarantee) -> str:
    """Return the guarantee in words."""
    return guarantee.replace("_", " ")


def scope_text(scope: AddressScope | tuple[str, ...]) -> str:
    """Return the devices that a participant may address, in words."""
    if isinstance(scope, AddressScope):
        return {
            AddressScope.ONE: "one device at a time",
            AddressScope.EVERYONE: "every device, groups and all at once",
        }[scope]
    return f"the groups {', '.join(scope)} and the devices in them"


def duration(seconds: int) -> str:
    """Return seconds in the largest unit that divides them."""
    for size, unit in _UNITS:
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _delay(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds % 1_000 else duration(milliseconds // 1_000)


def _confirmed(channel: Channel) -> str:
    share = f", {channel.receipts_percent} % of the events" if channel.receipts_percent < ALL_PERCENT else ""
    return f"confirmed after handling{share}"


def _special(channel: Channel) -> Iterator[str]:
    if channel.ordering is Ordering.SOURCE:
        yield "in the order of its source"
    if channel.expiry_s:
        yield f"expires after {duration(channel.expiry_s)}"
    if channel.give_up_after_s and not channel.webhook:
        yield f"given up after {duration(channel.give_up_after_s)} of failures"
    if channel.batching_delay_ms:
        yield f"waits up to {_delay(channel.batching_delay_ms)} for a batch"
    if channel.events_per_message > 1:
        yield f"up to {channel.events_per_message} events a message"
    if channel.receipts:
        yield "repeated until stored" if channel.box == "outbox" else _confirmed(channel)
    if channel.when_full is WhenFull.DROP_OLDEST:
        yield "drops the oldest when full"
    if channel.downlink is Downlink.STATE:
        yield "events go down as state"
    if channel.forward is Forward.WANTED:
        yield "takes up what the cloud wants"
