"""A channel as an endpoint of xRegistry: where a participant puts its events, or takes them from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from eventplane.contract.model import Channel, DeliveryGuarantee, Participant, ParticipantKind, Transport
from eventplane.registry.entities import xid
from eventplane.registry.model import EXTENSION
from eventplane.topics import basic_ingest_topic, device_topic, local_topic


def endpoint(
    participant: Participant,
    channel: Channel,
    *,
    carries: Sequence[str],
    messagegroup: str,
) -> dict[str, Any]:
    """The attributes of `channel`; `carries` are the types that it is known to carry to a reader."""
    protocol, options = _protocol(channel)
    attributes = {
        "name": channel.address,
        "usage": ["producer" if channel.box == "outbox" or channel.webhook else "consumer"],
        "channel": channel.address,
        "envelope": "CloudEvents/1.0",
        "envelopeoptions": _envelope_options(channel),
        "protocol": protocol,
        # Where it is, each deployment and each home knows for itself.
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
    """What the contract says of the channel, defaults and all, without what says nothing here."""
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
    # `{thing}` and `{rule}` are for the device's provisioning to fill in.
    if channel.transport is Transport.MQTT:
        topic = local_topic(channel.participant, channel.box)
    elif channel.box == "outbox":
        topic = basic_ingest_topic("{rule}", "{thing}")
    else:
        topic = device_topic("{thing}", channel.box)
    reliable = channel.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    return "MQTT/3.1.1", {"topic": topic, "qos": 1 if reliable else 0}
