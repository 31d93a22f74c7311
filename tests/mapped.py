"""A plane with a program that publishes plain JSON, as the mappings of its participant declare."""

from copy import deepcopy
from typing import Any

from eventplane.contract import Contract
from tests.small_contract import with_changes

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
