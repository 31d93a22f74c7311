"""The oracle: what should have arrived, computed from what was sent, compared with what did arrive.

It evaluates the routes by a plain loop over the senders' own record, so that an error in a router, its queues
or its ledger cannot hide itself.
"""

import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from eventplane.attributes import AttributeValue
from eventplane.contract import Channel, Contract, Place, Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import STARTED, forwarder_source
from eventplane.envelope import Envelope
from eventplane.names import OWN_SERVICES
from lab.poison import CloudPayload, Poison

Key = tuple[str, str]
"""Identifies an event by `source` and `id`, a dead letter by its reason and the SHA-256 of its original, and
the report that a device started by `type` and `source`, because one device starts but once."""

CARERS: Final = "carers"
CARERS_SOURCE: Final = f"/{CARERS}"
"""The participant that sends to homes: each of its events is for one home."""


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event that was sent, with the attributes that routes may filter by; `entered`: at which router."""

    source: str
    id: str
    type: str
    subject: str | None
    urgent: bool
    entered: Place

    @property
    def key(self) -> Key:
        return self.source, self.id

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """The recorded context attributes."""
        attributes: dict[str, AttributeValue] = {"source": self.source, "id": self.id, "type": self.type}
        if self.subject is not None:
            attributes["subject"] = self.subject
        return attributes


@dataclass(frozen=True, slots=True)
class SentPoison:
    """One malformed message that was sent: its `kind`, and the `reason` and `digest` of its dead letter."""

    kind: str
    reason: str
    digest: str

    @property
    def key(self) -> Key:
        return self.reason, self.digest


class SentLog:
    """The senders' record of what was sent. Repetitions of an event count once. Safe for threads."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._lock = threading.Lock()
        self._events: dict[Key, SentEvent] = {}
        self._poison: list[SentPoison] = []

    def event(self, event: Envelope, channel: Channel, entered: Place = Place.DEVICE) -> None:
        """Record that `event` was sent through `channel`, to the home's router or straight to the cloud's."""
        subject = event.attributes.get("subject")
        sent = SentEvent(
            source=event.source,
            id=event.id,
            type=event.type,
            subject=None if subject is None else str(subject),
            urgent=self._contract.priority(event, channel) is Priority.URGENT,
            entered=entered,
        )
        with self._lock:
            self._events.setdefault(sent.key, sent)

    def poison(self, message: Poison) -> None:
        """Record that a malformed message was sent."""
        sent = SentPoison(message.kind, message.reason, sha256(message.payload).hexdigest())
        with self._lock:
            self._poison.append(sent)

    def cloud_payload(self, payload: CloudPayload) -> None:
        """Record that a device published `payload` straight to the cloud."""
        for event in payload.good:
            self.event(event, self._contract.device.outbox, Place.CLOUD)
        for message in payload.poison:
            self.poison(message)

    @property
    def events(self) -> list[SentEvent]:
        """The events, in the order of sending."""
        with self._lock:
            return list(self._events.values())

    @property
    def malformed(self) -> list[SentPoison]:
        """The malformed messages, in the order of sending."""
        with self._lock:
            return list(self._poison)

    def counts(self) -> dict[str, int]:
        """Return the numbers of events, urgent ones and malformed messages, and of events for one home."""
        return {
            "events_sent": self.events_sent,
            "urgent_sent": self.urgent_sent,
            "malformed_sent": self.malformed_sent,
            "told": sum(each.source == CARERS_SOURCE for each in self.events),
        }

    @property
    def events_sent(self) -> int:
        return len(self._events)

    @property
    def urgent_sent(self) -> int:
        return sum(each.urgent for each in self.events)

    @property
    def malformed_sent(self) -> int:
        return len(self._poison)


@dataclass(frozen=True)
class Arrived:
    """The events that a service received: every key once, and the number of duplicates.

    `reports` are periodic reports of devices, whose number cannot be known beforehand.
    """

    received: Set[Key]
    duplicates: int
    reports: Set[Key] = frozenset()


@dataclass(frozen=True)
class ServiceResult:
    """The result of one `service`: `lost` are the expected events that did not arrive."""

    service: str
    expected: int
    delivered: int
    lost: tuple[Key, ...]
    unexpected: tuple[Key, ...]
    duplicates: int
    reports: int = 0

    @property
    def good(self) -> bool:
        """True if exactly the expected events arrived; duplicates are allowed at least once."""
        return not self.lost and not self.unexpected


def expected_by_service(
    contract: Contract,
    events: Iterable[SentEvent],
    malformed: Iterable[SentPoison] = (),
    devices: Iterable[str] = (),
) -> dict[str, set[Key]]:
    """Return the keys that each inbox of the contract's routes must receive, by participant.

    A malformed message is expected as a dead letter, and each of `devices`, things with a forwarder, is
    expected to report that it started.
    """
    uplink = contract.device.outbox.address
    expected: dict[str, set[Key]] = {
        contract.channel(route.destination).participant: set()
        for route in contract.routes
        if route.destination != uplink
    }
    for event in events:
        for destination in _destinations(contract, event, uplink):
            expected[contract.channel(destination).participant].add(event.key)
    reports = {
        DEAD_LETTER_TYPE: {each.key for each in malformed},
        STARTED: {(STARTED, forwarder_source(device)) for device in devices},
    }
    for type, keys in reports.items():
        for destination in _matching(contract, Place.CLOUD, {"type": type}):
            expected[contract.channel(destination).participant] |= keys
    # Functions of the plane read the others.
    own = {*OWN_SERVICES, contract.device.name}
    return {service: keys for service, keys in expected.items() if service not in own}


def dead_lettered(malformed: Iterable[SentPoison], arrived: Mapping[str, Arrived]) -> int:
    """Return how many of the `malformed` messages arrived somewhere as dead letters."""
    received = frozenset[Key]().union(*(each.received for each in arrived.values()))
    return len({each.key for each in malformed} & received)


def judge(expected: Mapping[str, Set[Key]], arrived: Mapping[str, Arrived]) -> list[ServiceResult]:
    """Return a verdict for each service of `expected`; one that is not in `arrived` received nothing."""
    nothing = Arrived(frozenset(), 0)
    return [_verdict(service, keys, arrived.get(service, nothing)) for service, keys in expected.items()]


def _verdict(service: str, expected: Set[Key], arrived: Arrived) -> ServiceResult:
    return ServiceResult(
        service=service,
        expected=len(expected),
        delivered=len(expected & arrived.received),
        lost=tuple(sorted(expected - arrived.received)),
        unexpected=tuple(sorted(arrived.received - expected)),
        duplicates=arrived.duplicates,
        reports=len(arrived.reports),
    )


def _destinations(contract: Contract, event: SentEvent, uplink: str) -> set[str]:
    destinations: set[str] = set()
    if event.entered is Place.DEVICE:
        destinations = _matching(contract, Place.DEVICE, event.attributes)
        if uplink not in destinations:
            return destinations
        destinations.discard(uplink)
    destinations |= _matching(contract, Place.CLOUD, event.attributes)
    if contract.device.inbox.address in destinations:
        # What came down never goes up again.
        destinations |= _matching(contract, Place.DEVICE, event.attributes) - {uplink}
    return destinations


def _matching(contract: Contract, place: Place, attributes: Mapping[str, AttributeValue]) -> set[str]:
    return {
        route.destination
        for route in contract.routes
        if route.place is place and route.filter.matches(attributes)
    }
