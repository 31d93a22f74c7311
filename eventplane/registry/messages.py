"""An event type as a message of xRegistry, and the versions of its payload's schema."""

from __future__ import annotations

from typing import Any, Final

from eventplane.contract.model import EventType
from eventplane.contract.reach import Flow, Way
from eventplane.registry.entities import Attributes, entity_id, xid
from eventplane.registry.model import EXTENSION

FORMAT: Final = "JsonSchema/draft/2020-12"
"""What xRegistry calls the contract's one schema language."""

_REQUIRED: Final = ("id", "source", "specversion")


def message(event_type: EventType, flow: Flow, schemas: str) -> dict[str, Any]:
    """The attributes of `event_type`; `schemas` is where the schemas of all types stand."""
    metadata: dict[str, Any] = {name: {"required": True} for name in _REQUIRED}
    metadata["type"] = {"value": event_type.name, "required": True}
    extension: dict[str, Any] = {
        "priority": event_type.priority,
        "schema_check": event_type.schema_check,
        "downlink": event_type.downlink,
        "delivery_guarantee": event_type.delivery_guarantee,
        "senders": [xid("participants", each.name) for each in flow.senders],
        "receivers": [_receiver(each) for each in flow.ways],
    }
    attributes: dict[str, Any] = {
        "name": event_type.name,
        "description": event_type.description,
        "envelope": "CloudEvents/1.0",
        "envelopemetadata": metadata,
        # What the contract leaves open is not there (xRegistry core: no attribute without a value).
        EXTENSION: {name: value for name, value in extension.items() if value is not None},
    }
    if event_type.schemas:
        attributes["datacontenttype"] = "application/json"
        attributes["dataschemaformat"] = FORMAT
        attributes["dataschemaxid"] = f"{schemas}/{entity_id(event_type.name)}"
        known = [each for each in event_type.schemas if each]
        if len(known) == 1:
            metadata["dataschema"] = {"value": known[0], "type": "uri"}
    return attributes


def _receiver(way: Way) -> dict[str, Any]:
    return {
        "participant": xid("participants", way.channel.participant),
        "endpoint": xid("endpoints", way.channel.address),
        "routes": [xid("routes", each.name) for each in way.routes],
        "every_event": not way.conditions,
    }


def schema_versions(event_type: EventType) -> dict[str, Attributes]:
    """The versions by number, in the contract's order: of 1 are the events that name no `dataschema`."""
    return {
        str(number): {
            "name": id or f"{event_type.name} {number}",
            **({"description": schema["title"]} if isinstance(schema.get("title"), str) else {}),
            "format": FORMAT,
            "contenttype": "application/schema+json",
            "schema": dict(schema),
            EXTENSION: {"dataschema": id},
        }
        for number, (id, schema) in enumerate(event_type.schemas.items(), start=1)
    }
