"""Write a contract as a document: plain data, every default written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from eventplane.contract import AddressScope, Channel, EventType, Participant, Route
from eventplane.contract.canonical import FORMAT
from eventplane.contract.channels import SETTINGS
from eventplane.filter_texts import to_document


def whole_document(
    name: str,
    participants: Mapping[str, Participant],
    event_types: Mapping[str, EventType],
    routes: tuple[Route, ...],
) -> dict[str, Any]:
    """Return the parts of a contract as one document."""
    return {
        "format": FORMAT if any(map(_needs_format_9, participants.values())) else FORMAT - 1,
        "name": name,
        "participants": {each.name: _participant(each) for each in participants.values()},
        "event_types": {each.name: _event_type(each) for each in event_types.values()},
        "routes": {each.name: _route(each) for each in routes},
    }


def _needs_format_9(participant: Participant) -> bool:
    """Return whether devices of 0.3.0, which read format 8, lack a setting of `participant`."""
    return bool(participant.mappings) or any(
        each.asks_for_receipts or (each.give_up_after_s and not each.webhook) for each in participant.channels
    )


def _participant(participant: Participant) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": participant.kind,
        "description": participant.description,
        "inbox": _channel(participant.inbox),
        "outbox": _channel(participant.outbox),
        "sends": None if participant.sends is None else list(participant.sends),
    }
    if participant.retired:
        # Left out otherwise, so that the software of older devices can read the contract.
        document["retired"] = True
    if participant.mappings:
        document["mappings"] = {each.name: each.document() for each in participant.mappings}
    if participant.asks:
        document["asks"] = list(participant.asks)
    if participant.may_subscribe is not None:
        document["may_subscribe"] = to_document(participant.may_subscribe)
    if participant.may_address is not AddressScope.ONE:
        reach = participant.may_address
        document["may_address"] = reach if isinstance(reach, AddressScope) else list(reach)
    return document


def _channel(channel: Channel) -> dict[str, Any]:
    document: dict[str, Any] = {"transport": channel.transport, "receipts": channel.receipts}
    for name, setting in SETTINGS.items():
        value = getattr(channel, name)
        if setting.is_always_written or value != setting.default:
            document[name] = value
    if channel.webhook:
        # Where formats 3 to 8 have it.
        document["webhook"] = {**asdict(channel.webhook), "give_up_after_s": channel.give_up_after_s}
        document.pop("give_up_after_s", None)
    return document


def _event_type(event_type: EventType) -> dict[str, Any]:
    document: dict[str, Any] = {
        "description": event_type.description,
        "priority": event_type.priority,
        "schemas": list(event_type.schemas.values()),
        "schema_check": event_type.schema_check,
    }
    if event_type.downlink:
        document["downlink"] = event_type.downlink
    if event_type.delivery_guarantee:
        document["delivery_guarantee"] = event_type.delivery_guarantee
    return document


def _route(route: Route) -> dict[str, Any]:
    document: dict[str, Any] = {"filter": to_document(route.filter), "to": route.destination}
    if route.interest is not None:
        document["interest"] = [*map(to_document, route.interest.filters)]
    if route.delivery_guarantee:
        document["delivery_guarantee"] = route.delivery_guarantee
    return document
