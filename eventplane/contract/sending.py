"""Warnings about what participants say that they send."""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.channel_reader import is_default
from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Participant
from eventplane.contract.possibilities import can_match, of_type
from eventplane.contract.vocabulary import ParticipantKind, Reach
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.dead_letter import DEAD_LETTER_TYPE


def misnamed_sends(contract: Contract) -> Iterator[Problem]:
    """Types under `sends` or `asks` that are none of the contract's. A family may be without members."""
    if not contract.event_types:
        return
    for participant in contract.participants.values():
        named = [("sends", each) for each in participant.sends or ()]
        for member, each in named + [("asks", each) for each in participant.asks]:
            if each not in contract.event_types and not each.endswith(".*"):
                yield Problem(
                    f"participants.{participant.name}.{member}",
                    f"{each} is no event type of the contract",
                    "correct the type, or declare the event type",
                )


def unsent_types(contract: Contract) -> Iterator[Problem]:
    """Event types that nobody sends; nothing is said while a participant that sends does not say what."""
    participants = contract.participants.values()
    written = {route.destination for route in contract.routes}
    silent = [each for each in participants if each.sends is None]
    if len(silent) == len(participants) or any(_is_sender(each, written) for each in silent):
        return
    for name in contract.event_types:
        # Dead letters are the routers' own; everybody may reply.
        if name not in (DEAD_LETTER_TYPE, REPLY_TYPE) and not any(
            each.may_send(name) for each in participants
        ):
            yield Problem(
                f"event_types.{name}",
                "no participant declares that it sends it",
                "add it to the `sends` of who does, or remove the type",
            )


def sends_down(contract: Contract, participant: Participant) -> bool:
    """Whether a cloud service says that it sends a type that a route can lead down to devices."""
    if participant.kind is not ParticipantKind.CLOUD_SERVICE:
        return False
    down = [each.filter for each in contract.routes if each.destination == contract.device.inbox.address]
    types = [each for each in contract.event_types if participant.may_send(each)]
    types += [each for each in participant.sends or () if not each.endswith(".*")]
    return any(can_match(filter, of_type(each)) for filter in down for each in types)


def idle_reaches(contract: Contract) -> Iterator[Problem]:
    """Participants that may address more than one device, and send nothing that goes down."""
    for each in contract.participants.values():
        if each.may_address is not Reach.ONE and each.sends is not None and not sends_down(contract, each):
            yield Problem(
                f"participants.{each.name}.may_address",
                "the participant sends nothing that a route leads down to devices",
                "remove it, or add what it sends to `sends` and to a route",
            )


def silent_senders(contract: Contract) -> Iterator[Problem]:
    """Participants whose outbox is in use and that do not say what they send.

    Nothing is said of a contract where nobody says it: it is of the time before `sends`.
    """
    participants = contract.participants.values()
    if all(each.sends is None for each in participants):
        return
    written = {route.destination for route in contract.routes}
    for each in participants:
        if each.sends is None and _is_sender(each, written):
            yield Problem(
                f"participants.{each.name}.sends",
                "it is missing, so that the participant may send only types that nobody else names",
                "list the types of its events, or `[]` for none",
            )


def _is_sender(participant: Participant, written: set[str]) -> bool:
    """Whether its outbox is in use: it has settings, or the participant receives nothing and so must send.

    A device's outbox is the uplink, which routes write, whether the device has events of its own or not.
    """
    if participant.kind is ParticipantKind.DEVICE:
        return False
    return participant.inbox.address not in written or not is_default(participant.outbox, participant.kind)
