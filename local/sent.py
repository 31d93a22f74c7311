"""The players' own record of what they sent: what the demo's oracle believes, instead of the cloud."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import sha256

from eventplane.attributes import AttributeValue
from eventplane.contract import Channel, Contract, Place, Priority
from eventplane.envelope import Envelope
from local.poison import CloudPayload, Poison

Key = tuple[str, str]
"""What identifies an event: `source` and `id`. Of a dead letter: its reason and its original's SHA-256. Of
the report that a device started: its `type` and `source`, because one device starts but once."""


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event that was sent, with the attributes that routes may ask for; `entered`: to which router."""

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
    """One malformed message that was sent: its `kind`, and what its dead letter must say."""

    kind: str
    reason: str
    digest: str

    @property
    def key(self) -> Key:
        return self.reason, self.digest


class SentLog:
    """Everything that was sent, by whatever thread. An event is sent once, however often it is repeated."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._lock = threading.Lock()
        self._events: dict[Key, SentEvent] = {}
        self._poison: list[SentPoison] = []
        self._urgent = 0

    def event(self, event: Envelope, channel: Channel, entered: Place = Place.DEVICE) -> None:
        """Note that `event` was sent through `channel`, to the home's router or straight to the cloud's."""
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
            if sent.key not in self._events:
                self._events[sent.key] = sent
                self._urgent += sent.urgent

    def poison(self, message: Poison) -> None:
        """Note that a malformed message was sent."""
        sent = SentPoison(message.kind, message.reason, sha256(message.payload).hexdigest())
        with self._lock:
            self._poison.append(sent)

    def cloud_payload(self, payload: CloudPayload) -> None:
        """Note that a device published `payload` straight to the cloud."""
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

    @property
    def events_sent(self) -> int:
        return len(self._events)

    @property
    def urgent_sent(self) -> int:
        return self._urgent

    @property
    def malformed_sent(self) -> int:
        return len(self._poison)
