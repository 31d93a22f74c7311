"""The rights of senders: the contract's `sends`, enforced alike on the device and in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventplane.contract import Channel, Contract, Participant, ParticipantKind
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.device_reports import DEVICE_REPORTS, DEVICE_STATES, OWNERS, forwarder_source, router_source
from eventplane.envelope import THE_PLANE, Envelope, Sender, reserved
from eventplane.names import (
    DOWNLINK,
    EPOCH,
    FOLLOWED_CONTRACT,
    LIFETIME_ATTRIBUTES,
    ORDER,
    ORDER_EPOCH,
    REPLY_TYPE,
    SENDER_ATTRIBUTES,
    SENDER_DEVICE,
    SENDER_SERVICE,
    SEQUENCE,
)
from eventplane.reasons import Reason

MAX_REMEMBERED: Final = 4_096
"""Most decisions that are remembered, a participant and a type each. Ours: a contract has some hundreds."""

_SPOKEN_FOR: Final = DEVICE_REPORTS | {DEAD_LETTER_TYPE}
"""The types whose source or data say in whose name they are."""


def stamp_sender(event: Envelope, sender: Sender) -> Envelope:
    """Return `event` with its authenticated `sender`; of a device, the forwarder has stamped the service.

    Raises `EnvelopeError` (`reserved_attribute`) where the event names a sender itself.
    """
    if sender.device:
        return event.stamped(**{SENDER_DEVICE: sender.device})
    if SENDER_DEVICE in event.attributes:
        raise reserved(SENDER_DEVICE)
    return event.stamped(**sender.attributes)


def without_stamp(event: Envelope) -> Envelope:
    """Return a stamped `event` as it was before `stamp_sender`."""
    return event.without((SENDER_DEVICE,) if event.sender.device else SENDER_ATTRIBUTES)


def sent_again(event: Envelope) -> Envelope:
    """Return `event` as a participant that received it may send it: without its sender and its numbers.

    What no hop has stamped is returned as it is, and `routerhops` stays.
    """
    if not SENDER_ATTRIBUTES.intersection(event.attributes):
        return event
    numbers = EPOCH, SEQUENCE, ORDER, ORDER_EPOCH
    return event.without((*SENDER_ATTRIBUTES, *numbers, FOLLOWED_CONTRACT, *LIFETIME_ATTRIBUTES))


class SendingRights:
    """The rights that `contract` gives to senders."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._remembered: dict[tuple[bool, object, object], str | None] = {}

    def refusal(self, event: Envelope) -> Refusal | None:
        """Return why the sender of a stamped `event` may not send it; None if it may."""
        attributes = event.attributes
        known = SENDER_DEVICE in attributes, attributes.get(SENDER_SERVICE), attributes["type"]
        if known not in self._remembered:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[known] = self._type_problem(event.sender, event.type)
        problem = self._remembered[known]
        if problem is None and event.type in _SPOKEN_FOR:
            problem = self._name_problem(event.sender, event)
        if problem is None:
            return None
        return Refusal(Reason.SENDER_NOT_ALLOWED, f"{event.sender} sent {event.type!r:.200}: {problem}")

    def may_send(self, sender: Sender, type: str) -> bool:
        """Return whether `sender` may send events of `type` at all, whatever they say besides."""
        return self._type_problem(sender, type) is None

    def senders(self, type: str) -> tuple[Participant, ...]:
        """Return the participants that may send events of `type`."""
        participants = self._contract.participants.values()
        return tuple(each for each in participants if self.may_send(Sender(service=each.name), type))

    def declared_senders(self, type: str) -> tuple[Participant, ...]:
        """Return those that may send it and name it under `sends` or `asks`."""
        return tuple(each for each in self.senders(type) if each.may_send(type) or each.may_ask(type))

    def may_have_sent(self, sender: Sender, type: str, source: str) -> bool:
        """Return whether `sender` may send such an event, by what its records have of it.

        As `refusal`, but the channel that a service's dead letter is about is not judged: it is in its data.
        """
        return not (self._type_problem(sender, type) or self._source_problem(sender, type, source))

    def _type_problem(self, sender: Sender, type: str) -> str | None:
        """Why nobody of this role may send `type`, whatever the event says besides."""
        if sender == THE_PLANE:
            return None
        senders = self._participants(sender)
        if not senders:
            return "the contract has no such participant there; deploy its contract to the device first"
        if type in (REPLY_TYPE, DEAD_LETTER_TYPE):
            return None
        if type in DEVICE_REPORTS:
            is_forwarder = any(each.kind is ParticipantKind.DEVICE for each in senders)
            return None if is_forwarder else "only a device's forwarder reports this; use a type of your own"
        if type in OWNERS:
            owner = OWNERS[type]
            return None if sender.service == owner else f"only {owner} sends it; use a type of your own"
        return self._declaration_problem(senders, type)

    def _declaration_problem(self, senders: list[Participant], type: str) -> str | None:
        """Why the contract does not give `type` to any of `senders`."""
        if type in DEVICE_STATES and all(each.kind.is_on_device for each in senders):
            return "only a cloud service sends it"
        if any(_names(each, type) for each in senders):
            return None
        if type in DEVICE_STATES or any(_names(each, type) for each in self._contract.participants.values()):
            return "the contract gives it to others; add it to the sender's `sends`, or correct the sender"
        if any(each.sends is None for each in senders):
            return None
        return "its `sends` does not name it; add the type, or correct the sender"

    def _participants(self, sender: Sender) -> list[Participant]:
        """The participants in whose place `sender` may speak: of a device as a whole, all on its side."""
        if sender.device and not sender.service:
            return [each for each in self._contract.participants.values() if each.kind.is_on_device]
        found = self._contract.participants.get(sender.service)
        if found is None or (sender.device and not found.kind.is_on_device):
            return []
        return [found]

    def _name_problem(self, sender: Sender, event: Envelope) -> str | None:
        """Why this event speaks for another, though the sender may send its type."""
        if problem := self._source_problem(sender, event.type, event.source):
            return problem
        if event.type != DEAD_LETTER_TYPE or sender == THE_PLANE:
            return None
        participant = self._writer(sender)
        if participant.kind is ParticipantKind.DEVICE:
            return None
        data = event.data()
        channel = data.get("channel") if isinstance(data, dict) else None
        if channel in [each.address for each in self._own_channels(participant)]:
            return None
        return f"a service writes dead letters about its own channels, this one is about {channel!r:.200}"

    def _source_problem(self, sender: Sender, type: str, source: str) -> str | None:
        """Why what a device says of itself has a source of another."""
        if type in DEVICE_REPORTS:
            return self._claims(sender, source, forwarder_source(sender.device))
        if type == DEAD_LETTER_TYPE and self._writer(sender).kind is ParticipantKind.DEVICE:
            return self._claims(sender, source, router_source(sender.device))
        return None

    def _writer(self, sender: Sender) -> Participant:
        """The participant that writes a dead letter: the device, where no service is named."""
        return self._contract.participants.get(sender.service, self._contract.device)

    def _own_channels(self, participant: Participant) -> Iterator[Channel]:
        yield from participant.channels
        if participant.name == DOWNLINK:
            yield self._contract.device.inbox

    def _claims(self, sender: Sender, source: str, own: str) -> str | None:
        if not sender.device or source == own:
            return None
        return f"its source is {source!r:.200}, the device's own is {own!r}"


def _names(participant: Participant, type: str) -> bool:
    return participant.may_send(type) or participant.may_ask(type)
