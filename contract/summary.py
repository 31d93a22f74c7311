"""A contract in a few lines, for the person who has just changed it."""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    Downlink,
    Ordering,
    Place,
    Priority,
    Problem,
    SchemaCheck,
    WhenFull,
)
from eventplane.filter_text import filter_text

_PLACES = {Place.DEVICE: "on the device", Place.CLOUD: "in the cloud"}


def summary(contract: Contract) -> str:
    """What the contract says, a line a participant, a box with settings of its own, and a route."""
    lines = [f"{contract.name}, version {contract.version}", "participants"]
    for each in contract.participants.values():
        description = f"(retired) {each.description}" if each.retired else each.description
        lines.append(f"  {each.kind:<15} {each.name:<18} {description}")
        lines += [f"{'':19}{box.box}: {said}" for box in (each.inbox, each.outbox) if (said := _special(box))]
        if each.asks:
            lines.append(f"{'':19}asks: {', '.join(each.asks)}")
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
    for place, where in _PLACES.items():
        if contract.routes_at(place):
            lines.append(f"routes decided {where}")
        for route in contract.routes_at(place):
            lines += [f"  {route.name} -> {route.destination}", f"      {filter_text(route.filter)}"]
    return "\n".join(lines)


def warnings_text(warnings: Sequence[Problem]) -> str:
    """The warnings, one below the other; '' when there are none."""
    if not warnings:
        return ""
    count = f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"
    return "\n".join([count, *(f"  {each}" for each in warnings)])


def _special(channel: Channel) -> str:
    """The settings that most channels do not have."""
    said = [
        channel.delivery_guarantee if channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT else "",
        channel.priority if channel.priority is not Priority.NORMAL else "",
        f"ordered by {channel.ordering}" if channel.ordering is not Ordering.NONE else "",
        f"expires after {channel.expiry_s} s" if channel.expiry_s else "",
        f"waits up to {channel.batching_delay_ms} ms for a batch" if channel.batching_delay_ms else "",
        "with receipts" if channel.receipts else "",
        "events go down as state" if channel.downlink is Downlink.STATE else "",
        f"a webhook, {channel.webhook.mode}" if channel.webhook else "",
        "drops the oldest when full" if channel.when_full is WhenFull.DROP_OLDEST else "",
    ]
    return ", ".join(each for each in said if each)
