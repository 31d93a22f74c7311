"""A contract in a few lines, for the person who has just changed it."""

from __future__ import annotations

from collections.abc import Sequence

from contract.words import guarantee_text, reach_text, special_text
from eventplane.contract import Contract, Place, Problem, Reach, SchemaCheck
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
