"""The contract as an AsyncAPI 3.0 document: a channel for each inbox, outbox and mapping, operations by
participant.

A message is an event: its headers are the attributes, its payload the data. On the wire both are members of
one JSON object (CloudEvents, structured mode). That of a mapping is whatever its program publishes. Filters,
rights and guarantees stay the contract's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from eventplane.attributes import REQUIRED, RULES
from eventplane.contract import Channel, Contract, Participant, ParticipantKind, Transport
from eventplane.contract.mapping import JSON, LEVEL, TopicMapping
from eventplane.names import REPLY_TYPE
from eventplane.reach import Reachability
from eventplane.resource_names import channel_queue, queue_name
from eventplane.topics import device_topic, local_topic

Document = dict[str, Any]

_SCHEMA_FORMAT: Final = "application/schema+json;version=draft-2020-12"
_JSON_TYPES: Final = {str: "string", int: "integer", bool: "boolean"}

_SERVERS: Final[dict[str, Document]] = {
    "home": {"host": "127.0.0.1:1883", "protocol": "mqtt", "description": "The Mosquitto of a home."},
    "iot_core": {
        "host": "{endpoint}:8883",
        "protocol": "secure-mqtt",
        "description": "AWS IoT Core, for devices.",
        "variables": {"endpoint": {"description": "The account's data endpoint (Data-ATS)."}},
    },
    "sqs": {
        "host": "sqs.{region}.amazonaws.com",
        "protocol": "sqs",
        "description": "The queues of an environment.",
        "variables": {"region": {"description": "The environment's region of AWS."}},
    },
}
_PARAMETERS: Final = {
    "environment": "The environment, such as prod.",
    "thing": "The device's name.",
}


def asyncapi(contract: Contract, names: Iterable[str] = ()) -> Document:
    """Return the document of the participants `names`, of all by default."""
    participants = [each for each in contract.participants.values() if not names or each.name in names]
    types = _types(contract)
    mapped = {_path(each): each for one in participants for each in one.mappings}
    keys = _keys({*mapped, *(each for one in types.values() for each in one)})
    addresses = [each.address for one in participants for each in one.channels]
    channels = {each.address: _channel(each, types, keys) for one in participants for each in one.channels}
    channels |= {keys[path]: _mapped_channel(each, keys[path]) for path, each in mapped.items()}
    used = sorted({type for each in addresses for type in types[each]})
    servers = {
        each["$ref"].rpartition("/")[2] for one in channels.values() for each in one.get("servers", ())
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": contract.name,
            "version": contract.version,
            "description": "Made of an Event Plane contract; the version is the contract's.",
        },
        "defaultContentType": "application/json",
        "servers": {name: each for name, each in _SERVERS.items() if name in servers},
        "channels": channels,
        "operations": {
            f"{each.name}.{verb}": operation
            for each in participants
            for verb, operation in _operations(each, types, keys).items()
        },
        "components": {
            "messages": {
                **{keys[each]: _message(contract, each) for each in used},
                **{keys[path]: _mapped_message(each) for path, each in mapped.items()},
            },
            "schemas": {"attributes": _attributes()},
        },
    }


def _path(mapping: TopicMapping) -> str:
    """Return the name of a mapping, which no type has."""
    return f"{mapping.participant}\n{mapping.name}"


def _keys(types: Iterable[str]) -> dict[str, str]:
    """Return the key of each type: itself, as far as keys and references may have its characters."""
    found: dict[str, str] = {}
    for each in sorted(types):
        key = re.sub(r"[^A-Za-z0-9._-]", "_", each)
        while key in found.values():
            key += "_"
        found[each] = key
    return found


def _types(contract: Contract) -> dict[str, list[str]]:
    """Return the types of events of each channel, by its address."""
    reach = Reachability(contract)
    found: dict[str, set[str]] = {each.address: set() for each in contract.channels}
    named = {type for each in contract.participants.values() for type in reach.named_types(each)}
    for type in {*contract.event_types, *named}:
        for sender in reach.rights.declared_senders(type):
            found[sender.outbox.address].add(type)
        for sender in reach.rights.senders(type):
            for way in reach.ways(type, sender):
                for route in way.routes:
                    found[route.destination].add(type)
    for each in contract.participants.values():
        if each.replies:
            found[each.replies.address].add(REPLY_TYPE)
    return {address: sorted(types) for address, types in found.items()}


def _channel(channel: Channel, types: dict[str, list[str]], keys: dict[str, str]) -> Document:
    address, server = _address(channel)
    document: Document = {
        "address": address,
        "messages": {
            keys[each]: {"$ref": f"#/components/messages/{keys[each]}"} for each in types[channel.address]
        },
    }
    if server:
        document["servers"] = [{"$ref": f"#/servers/{server}"}]
    parameters = {
        name: {"description": text}
        for name, text in _PARAMETERS.items()
        if address and f"{{{name}}}" in address
    }
    return document | ({"parameters": parameters} if parameters else {})


def _mapped_channel(mapping: TopicMapping, key: str) -> Document:
    named = {name: {"description": "A level of the topic."} for name in LEVEL.findall(mapping.topic)}
    return {
        "address": mapping.topic,
        "messages": {key: {"$ref": f"#/components/messages/{key}"}},
        "servers": [{"$ref": "#/servers/home"}],
        **({"parameters": named} if named else {}),
    }


def _mapped_message(mapping: TopicMapping) -> Document:
    condition = f" where {json.dumps(dict(mapping.when), ensure_ascii=False)}" if mapping.when else ""
    return {
        "name": mapping.name,
        "contentType": "application/json" if mapping.payload == JSON else "text/plain",
        "summary": f"It becomes an event of the type {mapping.type}{condition}.",
    }


def _address(channel: Channel) -> tuple[str | None, str]:
    """Return the address, None where an environment decides it, and the server ('': none of ours)."""
    if channel.webhook or channel.is_added_protocol:
        return None, ""
    if channel.transport is Transport.MQTT:
        return local_topic(channel.participant, channel.box), "home"
    if channel.transport is Transport.IOT_CORE:
        return device_topic("{thing}", channel.box), "iot_core"
    is_fifo = channel.transport is Transport.SQS_FIFO
    return queue_name("{environment}", channel_queue(channel), is_fifo=is_fifo), "sqs"


def _operations(
    participant: Participant, types: dict[str, list[str]], keys: dict[str, str]
) -> dict[str, Document]:
    outbox, inbox, replies = participant.outbox, participant.inbox, participant.replies
    asked = [each for each in types[outbox.address] if participant.may_ask(each)]
    sent = [each for each in types[outbox.address] if participant.may_send(each) or each not in asked]
    made = {
        "send": _operation("send", participant, outbox.address, [keys[each] for each in sent]),
        "ask": _operation("send", participant, outbox.address, [keys[each] for each in asked]),
        "receive": _operation(
            "receive", participant, inbox.address, [keys[each] for each in types[inbox.address]]
        ),
    }
    if replies:
        made["ask"]["reply"] = {
            "channel": {"$ref": f"#/channels/{replies.address}"},
            "messages": [_in_channel(replies.address, REPLY_TYPE)],
        }
    made |= {
        f"send.{each.name}": _operation("send", participant, keys[_path(each)], [keys[_path(each)]])
        for each in participant.mappings
    }
    return {verb: each for verb, each in made.items() if each["messages"]}


def _operation(action: str, participant: Participant, channel: str, keys: list[str]) -> Document:
    document: Document = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": participant.description,
        "tags": [{"name": participant.name}],
        "messages": [_in_channel(channel, each) for each in keys],
    }
    if participant.kind is not ParticipantKind.CLOUD_SERVICE:
        document["bindings"] = {"mqtt": {"qos": 1, "bindingVersion": "0.2.0"}}
    return document


def _in_channel(channel: str, key: str) -> Document:
    return {"$ref": f"#/channels/{channel}/messages/{key}"}


def _message(contract: Contract, type: str) -> Document:
    declared = contract.event_types.get(type)
    schemas = dict(declared.schemas) if declared else {}
    members: Document = {"type": {"const": type}}
    if schemas:
        members["dataschema"] = {"type": "string", "enum": list(schemas)}
    document: Document = {
        "name": type,
        "headers": {"allOf": [{"$ref": "#/components/schemas/attributes"}, {"properties": members}]},
        **({"summary": declared.description} if declared else {}),
    }
    if schemas:
        versions = list(schemas.values())
        schema = versions[0] if len(versions) == 1 else {"anyOf": versions}
        document["payload"] = {"schemaFormat": _SCHEMA_FORMAT, "schema": schema}
    if examples := [{"payload": each} for one in schemas.values() for each in one.get("examples", ())]:
        document["examples"] = examples
    return document


def _attributes() -> Document:
    """Return the schema of the attributes that have rules; others are Strings, Integers or Booleans."""
    members: Document = {name: {"type": _JSON_TYPES[kind]} for name, (kind, *_) in RULES.items()}
    members["specversion"]["const"] = "1.0"
    return {
        "type": "object",
        "title": "The context attributes of a CloudEvent",
        "required": list(REQUIRED),
        "properties": members,
        "additionalProperties": {"type": list(_JSON_TYPES.values())},
    }
