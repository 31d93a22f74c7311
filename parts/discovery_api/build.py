"""Build the registry of a contract, group by group: channels, event types, participants and routes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    EventType,
    Participant,
    ParticipantKind,
    Transport,
)
from eventplane.contract.compiler import contract_document
from eventplane.reach import Flow, Way, flows
from eventplane.topics import basic_ingest_topic, device_topic, local_topic
from parts.discovery_api.document import (
    EXTENSION,
    SPECVERSION,
    Entities,
    EntityAttributes,
    Versions,
    capabilities,
    entity_id,
    model,
    place,
    xid,
)

_RIGHTS: Final = ("may_subscribe", "may_address")


def build_registry(contract: Contract) -> dict[str, Any]:
    """Return the registry of `contract` as one document."""
    flowing = flows(contract)
    id, entities = entity_id(contract.name), Entities(int(contract.version[:8], 16))
    named = {"name": contract.name}
    return {
        "specversion": SPECVERSION,
        "registryid": id,
        **named,
        "labels": {"contractversion": contract.version},
        "self": place("/"),
        "xid": "/",
        "epoch": entities.epoch,
        "capabilities": capabilities(),
        "modelsource": model(),
        "endpoints": entities.groups("endpoints", _endpoints(contract, flowing)),
        "messagegroups": {
            id: entities.group(
                "messagegroups",
                id,
                {**named, "envelope": "CloudEvents/1.0"},
                messages=_messages(contract, flowing),
            )
        },
        "participants": entities.groups("participants", _participants(contract)),
        "routes": entities.groups("routes", _routes(contract)),
        "schemagroups": {id: entities.group("schemagroups", id, named, schemas=_schemas(contract))},
    }


def _endpoints(contract: Contract, flowing: Mapping[str, Flow]) -> dict[str, EntityAttributes]:
    carried: dict[str, list[str]] = {}
    for name, flow in flowing.items():
        for address in _carriers(flow):
            carried.setdefault(address, []).append(name)
    return {
        entity_id(channel.address): endpoint(
            contract.participants[channel.participant],
            channel,
            carries=carried.get(channel.address, []),
            messagegroup=xid("messagegroups", contract.name),
        )
        for channel in contract.channels
    }


def _carriers(flow: Flow) -> dict[str, None]:
    """Return the channels that events of a flow go over, as far as the contract declares it."""
    addresses = [each.outbox.address for each in flow.senders]
    addresses += [route.destination for way in flow.ways for route in way.routes]
    return dict.fromkeys(addresses)


def _messages(contract: Contract, flowing: Mapping[str, Flow]) -> dict[str, Versions]:
    schemas = f"{xid('schemagroups', contract.name)}/schemas"
    return {
        entity_id(each.name): {"1": message(each, flowing[each.name], schemas)}
        for each in contract.event_types.values()
    }


def _schemas(contract: Contract) -> dict[str, Versions]:
    return {
        entity_id(each.name): schema_versions(each) for each in contract.event_types.values() if each.schemas
    }


def _participants(contract: Contract) -> dict[str, EntityAttributes]:
    written = contract_document(contract)["participants"]
    endpoints: dict[str, dict[str, str]] = {name: {} for name in contract.participants}
    for channel in contract.channels:
        endpoints[channel.participant][channel.box] = xid("endpoints", channel.address)
    return {
        entity_id(each.name): {
            "name": each.name,
            "description": each.description,
            EXTENSION: {
                "kind": each.kind,
                "retired": each.retired,
                "endpoints": endpoints[each.name],
                # Left out where undeclared: an empty list would mean that it sends nothing.
                **({} if each.sends is None else {"sends": list(each.sends)}),
                **({"asks": list(each.asks)} if each.asks else {}),
                # Its rights beyond its routes, as the contract writes them.
                **{name: written[each.name][name] for name in _RIGHTS if name in written[each.name]},
            },
        }
        for each in contract.participants.values()
    }


def _routes(contract: Contract) -> dict[str, EntityAttributes]:
    written = contract_document(contract)["routes"]
    return {
        entity_id(each.name): {
            "name": each.name,
            EXTENSION: {
                **written[each.name],
                "to": xid("endpoints", each.destination),
                "decided": each.place,
            },
        }
        for each in contract.routes
    }


def endpoint(
    participant: Participant,
    channel: Channel,
    *,
    carries: Sequence[str],
    messagegroup: str,
) -> dict[str, Any]:
    """Return the attributes of `channel`; `carries` are the types that it is known to carry to a reader."""
    protocol, options = _protocol(channel)
    attributes = {
        "name": channel.address,
        "usage": ["producer" if channel.box == "outbox" or channel.webhook else "consumer"],
        "channel": channel.address,
        "envelope": "CloudEvents/1.0",
        "envelopeoptions": _envelope_options(channel),
        "protocol": protocol,
        # The address depends on the deployment and on the home.
        "protocoloptions": {"deployed": False, **options},
        "messagegroups": [messagegroup],
        EXTENSION: {
            "participant": xid("participants", participant.name),
            "box": channel.box,
            "settings": _settings(participant, channel),
            "types": list(carries),
        },
    }
    if participant.retired:
        attributes["deprecated"] = {}
    return attributes


def _settings(participant: Participant, channel: Channel) -> dict[str, Any]:
    """Return the settings of the channel, with defaults, without those that do not apply."""
    elsewhere = {"participant", "box"}
    if channel is not participant.inbox or participant.kind is not ParticipantKind.DEVICE:
        elsewhere.add("downlink")
    settings = dataclasses.asdict(channel)
    return {name: value for name, value in settings.items() if name not in elsewhere and value is not None}


def _envelope_options(channel: Channel) -> dict[str, str]:
    mode = channel.webhook.mode if channel.webhook else "structured"
    return (
        {"mode": mode, "format": "application/cloudevents+json"} if mode == "structured" else {"mode": mode}
    )


def _protocol(channel: Channel) -> tuple[str, dict[str, Any]]:
    if channel.webhook:
        return "HTTP", {"method": "POST"}
    if channel.is_added_protocol:
        return channel.transport.upper(), {}
    if channel.transport in (Transport.SQS, Transport.SQS_FIFO):
        return "SQS", {"fifo": channel.transport is Transport.SQS_FIFO}
    # The device's provisioning fills in `{thing}` and `{rule}`.
    if channel.transport is Transport.MQTT:
        topic = local_topic(channel.participant, channel.box)
    elif channel.box == "outbox":
        topic = basic_ingest_topic("{rule}", "{thing}")
    else:
        topic = device_topic("{thing}", channel.box)
    reliable = channel.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    return "MQTT/3.1.1", {"topic": topic, "qos": 1 if reliable else 0}


FORMAT: Final = "JsonSchema/draft/2020-12"
"""xRegistry's name of the contract's schema language."""

_REQUIRED: Final = ("id", "source", "specversion")


def message(event_type: EventType, flow: Flow, schemas: str) -> dict[str, Any]:
    """Return the attributes of `event_type`; `schemas` is the path of the schemas of all types."""
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
        # Undeclared settings are absent (xRegistry core: no attribute without a value).
        EXTENSION: {name: value for name, value in extension.items() if value is not None},
    }
    if event_type.schemas:
        attributes["datacontenttype"] = "application/json"
        attributes["dataschemaformat"] = FORMAT
        attributes["dataschemaxid"] = f"{schemas}/{entity_id(event_type.name)}"
        if len(event_type.schemas) == 1:
            metadata["dataschema"] = {"value": next(iter(event_type.schemas)), "type": "uri"}
    return attributes


def _receiver(way: Way) -> dict[str, Any]:
    return {
        "participant": xid("participants", way.channel.participant),
        "endpoint": xid("endpoints", way.channel.address),
        "routes": [xid("routes", each.name) for each in way.routes],
        "every_event": way.is_certain,
    }


def schema_versions(event_type: EventType) -> dict[str, EntityAttributes]:
    """Return the versions by number, in their order; events without `dataschema` are of version 1."""
    return {
        str(number): {
            "name": id,
            **({"description": schema["title"]} if isinstance(schema.get("title"), str) else {}),
            "format": FORMAT,
            "contenttype": "application/schema+json",
            "schema": dict(schema),
            EXTENSION: {"dataschema": id},
        }
        for number, (id, schema) in enumerate(event_type.schemas.items(), start=1)
    }
