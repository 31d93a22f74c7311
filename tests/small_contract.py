"""Contracts of a test's own: small ones, others with changes, and one whose participant maps plain JSON."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.contract.canonical import FORMAT

Members = Mapping[str, Any]


def small_document(
    participants: Mapping[str, str | Members],
    routes: Mapping[str, tuple[Any, str] | Members],
    event_types: Mapping[str, Members] | None = None,
) -> dict[str, Any]:
    """Return the document. A participant may be its kind alone; a route may be its filter and destination."""
    kinds = {name: {"kind": each} if isinstance(each, str) else each for name, each in participants.items()}
    return {
        "format": FORMAT,
        "name": "small",
        "participants": {name: {"description": "d", **each} for name, each in kinds.items()},
        "event_types": {name: {"description": "d", **each} for name, each in (event_types or {}).items()},
        "routes": {
            name: {"filter": each[0], "to": each[1]} if isinstance(each, tuple) else dict(each)
            for name, each in routes.items()
        },
    }


def small_contract(
    participants: Mapping[str, str | Members],
    routes: Mapping[str, tuple[Any, str] | Members],
    event_types: Mapping[str, Members] | None = None,
) -> Contract:
    """Return the contract of `small_document`."""
    return compile_contract(small_document(participants, routes, event_types), "small")


def put(document: dict[str, Any], path: str, value: object) -> None:
    """Set the member at a path (`routes/up/to`), with the members above it; None removes it.

    A new participant or type gets a description.
    """
    part, *below = path.split("/")
    at = document
    if below:
        at = at.setdefault(part, {})
        if part in ("participants", "event_types"):
            kind = {"kind": "cloud_service"} if part == "participants" else {}
            at = at.setdefault(below.pop(0), {**kind, "description": "one more"}) if len(below) > 1 else at
        *parents, part = below
        for each in parents:
            at = at.setdefault(each, {})
    if value is None:
        at.pop(part, None)
    else:
        at[part] = value


def with_changes(contract: Contract, changes: Mapping[str, Any]) -> Contract:
    """Return `contract` with other values at paths, as `put` sets them."""
    document = deepcopy(contract_document(contract))
    for path, value in changes.items():
        put(document, path, value)
    return compile_contract(document, "with changes")


ROOM = "zigbee2mqtt/{room}/motion"
MOTION = "org.eventplane.motion.v1"
MAPPINGS: dict[str, dict[str, Any]] = {
    "motion": {
        "topic": ROOM,
        "type": MOTION,
        "when": {"/occupancy": True},
        "attributes": {
            "subject": "flat/{room}",
            "time": {"pointer": "/last_seen"},
            "link": {"pointer": "/q"},
        },
        "data": {"state": "moved", "battery": {"pointer": "/battery"}},
    },
    "smoke": {"topic": "zigbee2mqtt/{room}/smoke", "type": "ALARM", "when": {"/smoke": True}},
    "sensor": {"topic": "tele/+/SENSOR", "type": MOTION, "id": "/Time"},
    "switch": {
        "topic": "homeassistant/switch/#",
        "type": MOTION,
        "payload": "text",
        "data": {"state": {"pointer": ""}},
    },
}


def mapped(plane: Contract, alarm: str, changes: dict[str, Any] | None = None) -> Contract:
    """Return `plane` with the participant `zigbee`, whose mappings have these `changes`."""
    mappings = deepcopy(MAPPINGS)
    mappings["smoke"]["type"] = alarm
    zigbee = {
        "kind": "device_service",
        "description": "Zigbee2MQTT and others.",
        "sends": [MOTION, alarm],
        "mappings": mappings,
    }
    paths = {f"participants/zigbee/{path}": value for path, value in (changes or {}).items()}
    motion = {"event_types/" + MOTION: {"description": "It moved."}}
    return with_changes(plane, {**motion, "participants/zigbee": zigbee, **paths})
