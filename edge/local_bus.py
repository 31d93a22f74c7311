"""What the home's broker means to the forwarder: which topic is whose box."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.contract import Channel, Contract, ParticipantKind
from eventplane.topics import interest_topic, local_topic, receipt_topic, state_topic


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages on this topic are events that a service sends."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class InboxReceipts:
    """Messages on this topic confirm what a service has taken from its inbox."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class StateQuestions:
    """On this topic the service with this inbox asks for the current state of a key."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Announcements:
    """On this topic the service with this inbox announces what it handles."""

    channel: Channel


Role = Outbox | InboxReceipts | StateQuestions | Announcements


def local_topics(contract: Contract) -> dict[str, Role]:
    """The topics to subscribe to, with what they carry."""
    topics: dict[str, Role] = {}
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        topics[local_topic(service.name, service.outbox.box)] = Outbox(service.outbox)
        topics[state_topic(service.name)] = StateQuestions(service.inbox)
        topics[interest_topic(service.name)] = Announcements(service.inbox)
        if service.inbox.receipts:
            topics[receipt_topic(service.name, service.inbox.box)] = InboxReceipts(service.inbox)
    return topics
