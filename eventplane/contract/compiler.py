"""From the document people write to a checked `Contract` and its canonical form.

The canonical form is JSON with sorted members and every default written out; its SHA-256 is the contract
version. Loading a canonical form gives an equal contract with the same version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eventplane.contract.errors import ContractError, Problem
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.model import (
    Channel,
    Contract,
    DeliveryGuarantee,
    EventType,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    Transport,
)
from eventplane.contract.reader import Section
from eventplane.filters import to_document

FORMAT = 1
"""The version of the document's own format."""

VERSION_LENGTH = 16
"""Hexadecimal digits of the content hash that name a contract: 64 bits."""

_DAY_S = 86_400

# The transports each kind's boxes may use; the first is the default.
_TRANSPORTS = {
    ParticipantKind.DEVICE: (Transport.IOT_CORE,),
    ParticipantKind.DEVICE_SERVICE: (Transport.MQTT,),
    ParticipantKind.CLOUD_SERVICE: (Transport.SQS, Transport.SQS_FIFO),
}


def compile_contract(document: object, origin: str) -> Contract:
    """The contract that `document` declares. Raises `ContractError` with every problem found.

    `document` is plain data (mappings, lists, strings, numbers), `origin` the file it came from. The payload
    schema of an event type stands in it as a JSON Schema document, not as a file name.
    """
    problems: list[Problem] = []
    top = Section("", document, problems)
    if top.raw("format") != FORMAT:
        top.fault("format", f"{top.raw('format')!r} is not a known format", f"write `format: {FORMAT}`")
    name = top.text("name")
    participants = {
        each: _read_participant(each, section)
        for each, section in top.section("participants").entries().items()
    }
    event_types = _read_event_types(top.section("event_types"))
    # By name, like everything in the canonical form: the order of writing means nothing.
    routes = tuple(
        _read_route(each, section, participants)
        for each, section in sorted(top.section("routes").entries().items())
    )
    top.finish()
    _check_whole(top, participants, routes)
    if problems:
        raise ContractError(origin, problems)
    canonical = _canonical(name, participants, event_types, routes)
    return Contract(
        name=name,
        version=hashlib.sha256(canonical).hexdigest()[:VERSION_LENGTH],
        canonical=canonical,
        participants=MappingProxyType(participants),
        event_types=MappingProxyType(event_types),
        routes=routes,
    )


def load_compiled(canonical: bytes | str, origin: str = "compiled contract") -> Contract:
    """The contract of a canonical form. Raises `ContractError` when it is damaged."""
    try:
        document = json.loads(canonical)
    except (ValueError, RecursionError) as error:
        raise ContractError(
            origin, [Problem("(document)", f"not JSON: {error}", "compile the contract again")]
        ) from error
    return compile_contract(document, origin)


def _read_participant(name: str, section: Section) -> Participant:
    kind = section.choice("kind", ParticipantKind, None)
    if kind is None:
        if section.raw("kind") is None:
            section.fault("kind", "it is missing", "say where the participant lives: device_service, ...")
        kind = ParticipantKind.CLOUD_SERVICE
    participant = Participant(
        name=name,
        kind=kind,
        description=section.text("description"),
        inbox=_read_channel(name, kind, section.section("inbox")),
        outbox=_read_channel(name, kind, section.section("outbox")),
    )
    section.finish()
    return participant


def _read_channel(participant: str, kind: ParticipantKind, section: Section) -> Channel:
    transports = _TRANSPORTS[kind]
    transport = section.choice("transport", Transport, transports[0])
    if transport not in transports:
        words = ", ".join(transports)
        section.fault("transport", f"a {kind} has no {transport} channel", f"choose one of: {words}")
    ordering = section.choice("ordering", Ordering, Ordering.NONE) or Ordering.NONE
    if ordering is Ordering.SOURCE and transport is Transport.SQS:
        section.fault(
            "ordering", "a standard queue promises no order", "use `transport: sqs_fifo` or `ordering: none`"
        )
    guarantee = section.choice("delivery_guarantee", DeliveryGuarantee, DeliveryGuarantee.AT_LEAST_ONCE)
    channel = Channel(
        participant=participant,
        box=section.path.rsplit(".", 1)[-1],
        transport=transport or transports[0],
        delivery_guarantee=guarantee or DeliveryGuarantee.AT_LEAST_ONCE,
        priority=section.choice("priority", Priority, Priority.NORMAL) or Priority.NORMAL,
        ordering=ordering,
        expiry_s=section.integer("expiry_s", None, 1, 365 * _DAY_S, "seconds"),
        batching_delay_ms=section.integer("batching_delay_ms", 0, 0, 300_000, "milliseconds") or 0,
        # SQS keeps a message for 60 s to 14 days.
        retention_s=section.integer("retention_s", 14 * _DAY_S, 60, 14 * _DAY_S, "seconds") or 0,
        # Below five, throttled invocations alone can spend the receives (AWS Lambda guide for SQS).
        max_receives=section.integer("max_receives", 5, 5, 1_000, "receives") or 0,
        receipts=section.boolean("receipts", default=False),
    )
    section.finish()
    return channel


def _read_event_types(section: Section) -> dict[str, EventType]:
    types = {}
    for name in section.members:
        each = section.section(name)
        schema = each.raw("schema")
        if schema is not None and not isinstance(schema, Mapping):
            each.fault("schema", "it is not a JSON Schema", "name a file under schemas/ that holds one")
        types[str(name)] = EventType(
            name=str(name),
            description=each.text("description"),
            priority=each.choice("priority", Priority, None),
            schema=schema,
        )
        each.finish()
    return types


def _read_route(name: str, section: Section, participants: Mapping[str, Participant]) -> Route:
    destination = section.text("to")
    route_filter = read_filter(section.raw("filter"), f"{section.path}.filter", section.problems)
    section.raw("description")
    section.finish()
    return Route(name, route_filter, destination, _place_of(destination, section, participants))


def _place_of(destination: str, section: Section, participants: Mapping[str, Participant]) -> Place:
    """Who decides a route follows from where it leads: the router that writes that channel."""
    participant, _, box = destination.partition(".")
    target = participants.get(participant)
    if target is None:
        known = ", ".join(participants) or "none"
        section.fault("to", f"participant {participant!r} is unknown", f"declare it, or use one of: {known}")
        return Place.CLOUD
    writable = "outbox" if target.kind is ParticipantKind.DEVICE and box == "outbox" else "inbox"
    if box != writable:
        section.fault(
            "to",
            f"a router does not write {destination!r}",
            "lead to a participant's inbox, or to the device's outbox (the uplink)",
        )
    if target.kind is ParticipantKind.CLOUD_SERVICE:
        return Place.CLOUD
    if target.kind is ParticipantKind.DEVICE and box == "inbox":
        return Place.CLOUD
    return Place.DEVICE


def _check_whole(top: Section, participants: Mapping[str, Participant], routes: tuple[Route, ...]) -> None:
    devices = [each.name for each in participants.values() if each.kind is ParticipantKind.DEVICE]
    if len(devices) != 1:
        top.fault(
            "participants",
            f"{len(devices)} participants are of kind device",
            "declare exactly one: it stands for every device",
        )
    if not routes:
        top.fault("routes", "there is no route", "declare at least one")


def _canonical(
    name: str,
    participants: Mapping[str, Participant],
    event_types: Mapping[str, EventType],
    routes: tuple[Route, ...],
) -> bytes:
    document = {
        "format": FORMAT,
        "name": name,
        "participants": {each.name: _participant_document(each) for each in participants.values()},
        "event_types": {each.name: _event_type_document(each) for each in event_types.values()},
        "routes": {
            each.name: {"filter": to_document(each.filter), "to": each.destination} for each in routes
        },
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _route_document(route: Route) -> dict[str, Any]:
    return {"filter": to_document(route.filter), "to": route.destination}


def _participant_document(participant: Participant) -> dict[str, Any]:
    return {
        "kind": participant.kind,
        "description": participant.description,
        "inbox": _channel_document(participant.inbox),
        "outbox": _channel_document(participant.outbox),
    }


def _channel_document(channel: Channel) -> dict[str, Any]:
    return {
        "transport": channel.transport,
        "delivery_guarantee": channel.delivery_guarantee,
        "priority": channel.priority,
        "ordering": channel.ordering,
        "expiry_s": channel.expiry_s,
        "batching_delay_ms": channel.batching_delay_ms,
        "retention_s": channel.retention_s,
        "max_receives": channel.max_receives,
        "receipts": channel.receipts,
    }


def _event_type_document(event_type: EventType) -> dict[str, Any]:
    return {
        "description": event_type.description,
        "priority": event_type.priority,
        "schema": event_type.schema,
    }
