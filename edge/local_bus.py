"""What the home's broker means to the forwarder: which topic is whose box."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.contract import Channel, Contract, ParticipantKind
from eventplane.topics import local_topic, receipt_topic


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages on this topic are events that a service sends."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class InboxReceipts:
    """Messages on this topic confirm what a service has taken from its inbox."""

    channel: Channel


def local_topics(contract: Contract) -> dict[str, Outbox | InboxReceipts]:
    """The topics to subscribe to, with what they carry."""
    topics: dict[str, Outbox | InboxReceipts] = {}
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        topics[local_topic(service.name, service.outbox.box)] = Outbox(service.outbox)
        if service.inbox.receipts:
            topics[receipt_topic(service.name, service.inbox.box)] = InboxReceipts(service.inbox)
    return topics
