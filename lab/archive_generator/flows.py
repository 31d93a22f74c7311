"""Traffic of devices by a contract: each service's types, where they go on the device and in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import (
    Contract,
    Ordering,
    ParticipantKind,
    Place,
    Route,
    SchemaCheck,
    compile_contract,
)
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX
from eventplane.envelope import Envelope
from eventplane.router import Router

ALARM: Final = "org.example.alarm.v1"
READING: Final = "org.example.reading.v1"
CLIMATE: Final = "org.example.climate.v1"
MOTION: Final = "org.example.motion.v1"
DIARY: Final = "org.example.diary.v1"
"""What no route of the cloud takes."""

_DOCUMENT: Final[dict[str, Any]] = {
    "format": 3,
    "name": "audited",
    "participants": {
        "device": {"kind": "device", "description": "A home."},
        "voice": {"kind": "device_service", "description": "Hears a call for help.", "sends": [ALARM]},
        "health": {"kind": "device_service", "description": "Measures people.", "sends": [READING]},
        "climate": {"kind": "device_service", "description": "Measures rooms.", "sends": [CLIMATE]},
        "activity": {
            "kind": "device_service",
            "description": "Sees who moves, and takes notes.",
            "sends": [MOTION, DIARY],
        },
        "siren": {"kind": "device_service", "description": "Is loud.", "sends": []},
        "alarm-centre": {
            "kind": "cloud_service",
            "description": "Answers alarms at an endpoint of its own.",
            "inbox": {"webhook": {}},
            "sends": [],
        },
        "care": {"kind": "cloud_service", "description": "Reads measurements.", "sends": []},
        "nurse": {
            "kind": "cloud_service",
            "description": "Reads the climate of bathrooms by a program that leaves receipts.",
            "inbox": {"receipts": True},
            "sends": [],
        },
        "family": {
            "kind": "cloud_service",
            "description": "Sees the day in its order.",
            "inbox": {"transport": "sqs_fifo", "ordering": "source"},
            "sends": [],
        },
        "operations": {"kind": "cloud_service", "description": "Reads letters and reports.", "sends": []},
    },
    "event_types": {
        ALARM: {"description": "An alarm.", "priority": "urgent"},
        READING: {
            "description": "A reading.",
            "schemas": [{"$id": "https://schemas.example.org/reading", "type": "object"}],
            "schema_check": "known",
        },
        CLIMATE: {"description": "A room's climate.", "priority": "low"},
        MOTION: {"description": "Somebody moved."},
        DIARY: {"description": "A note that only the archive keeps."},
    },
    "routes": {
        "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
        "alarms-to-siren": {"filter": {"exact": {"type": ALARM}}, "to": "siren.inbox"},
        "alarms-to-centre": {"filter": {"exact": {"type": ALARM}}, "to": "alarm-centre.inbox"},
        "readings-to-care": {
            "filter": {
                "any": [{"exact": {"type": READING}}, {"sql": f"type = '{CLIMATE}' AND subject LIKE '/%'"}]
            },
            "to": "care.inbox",
        },
        "baths-to-nurse": {
            "filter": {"all": [{"exact": {"type": CLIMATE}}, {"exact": {"subject": "/bath"}}]},
            "to": "nurse.inbox",
        },
        "day-to-family": {"filter": {"exact": {"type": MOTION}}, "to": "family.inbox"},
        "letters": {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "operations.inbox"},
        "reports": {"filter": {"prefix": {"type": REPORT_PREFIX}}, "to": "operations.inbox"},
    },
}


def audited_contracts() -> tuple[Contract, Contract]:
    """The contract of an archive's first half, and that of its second: alarms go to care as well."""
    later = deepcopy(_DOCUMENT)
    later["routes"]["alarms-to-care"] = {"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}
    return compile_contract(_DOCUMENT, "generated"), compile_contract(later, "generated")


ROOMS = ("/kitchen", "/bedroom", "/bath")
"""Subjects, so that filters have something to tell apart."""


@dataclass(frozen=True, slots=True)
class SentFlow:
    """Events of one `type` of one `service` about one `subject`."""

    service: str
    type: str
    subject: str


def flows(contract: Contract) -> list[SentFlow]:
    """Every event type that a device's services declare to send, about each room."""
    return [SentFlow(service, type, room) for service, type in _types(contract) for room in ROOMS]


def _types(contract: Contract) -> Iterator[tuple[str, str]]:
    for participant in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        for type in contract.event_types:
            if participant.may_send(type):
                yield participant.name, type


class Routing:
    """The decisions of the routers of `contract`, and what the audit may hold against them."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self._cloud = Router(contract, Place.CLOUD)
        self._device = Router(contract, Place.DEVICE)
        self.uplink = contract.device.outbox

    def cloud(self, event: Envelope) -> list[Route]:
        """The cloud's routes of `event`."""
        return list(self._cloud.route(event))

    def on_device(self, event: Envelope) -> list[str]:
        """Return the inboxes of `event` on the device."""
        return [route.destination for route in self._device.route(event)]

    def priority(self, event: Envelope) -> str:
        """Return it as the ledger has it."""
        return str(self.contract.priority(event, self.uplink))

    def is_ordered(self, route: Route) -> bool:
        """Return whether the inbox promises the order of each source."""
        return self.contract.channel(route.destination).ordering is Ordering.SOURCE

    def is_webhook(self, route: Route) -> bool:
        """Return whether a function posts what is in the inbox, and records the answers."""
        return self.contract.channel(route.destination).webhook is not None

    def is_recorded(self, route: Route) -> bool:
        """Return whether the archive gets a record of what the inbox's consumer did."""
        return self.is_webhook(route) or self.contract.channel(route.destination).asks_for_receipts

    def is_checked(self, type: str) -> bool:
        """Return whether the payloads of `type` can be refused."""
        known = self.contract.event_types.get(type)
        return known is not None and known.schema_check is not SchemaCheck.NONE

    def others(self, taken: list[Route]) -> list[Route]:
        """The cloud's routes but those `taken` and what leads to the same inboxes."""
        inboxes = {route.destination for route in taken}
        return [each for each in self.contract.routes_at(Place.CLOUD) if each.destination not in inboxes]
