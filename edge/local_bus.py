"""What the home's broker means to the forwarder: which topic is whose box."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.contract import Channel, Contract, ParticipantKind
from eventplane.topics import handlers_topic, interest_topic, local_topic, receipt_topic, state_topic


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
class HandlersQuestions:
    """On this topic the service with this inbox asks who handles an event."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Announcements:
    """On this topic the service with this inbox announces what it handles."""

    channel: Channel


Role = Outbox | InboxReceipts | StateQuestions | HandlersQuestions | Announcements


def local_topics(contract: Contract) -> dict[str, Role]:
    """The topics to subscribe to, with what they carry."""
    topics: dict[str, Role] = {}
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        topics[local_topic(service.name, service.outbox.box)] = Outbox(service.outbox)
        topics[state_topic(service.name)] = StateQuestions(service.inbox)
        topics[interest_topic(service.name)] = Announcements(service.inbox)
        topics[handlers_topic(service.name)] = HandlersQuestions(service.inbox)
        for channel in (service.inbox, service.replies):
            if channel is not None and channel.receipts:
                topics[receipt_topic(service.name, channel.box)] = InboxReceipts(channel)
    return topics
