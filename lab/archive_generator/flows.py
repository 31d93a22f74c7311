"""Traffic of devices by a contract: each service's types, where they go on the device and in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eventplane.contract import Contract, Ordering, ParticipantKind, Place, Route, SchemaCheck
from eventplane.envelope import Envelope
from eventplane.router import Router

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
