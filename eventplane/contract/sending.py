"""Warnings about what participants say that they send."""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.channel_reader import is_default
from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Participant
from eventplane.contract.vocabulary import ParticipantKind
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.delivery import DEAD_LETTER_TYPE


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


def _is_sender(participant: Participant, written: set[str]) -> bool:
    """Whether its outbox is in use: it has settings, or the participant receives nothing and so must send.

    A device's outbox is the uplink, which routes write, whether the device has events of its own or not.
    """
    if participant.kind is ParticipantKind.DEVICE:
        return False
    return participant.inbox.address not in written or not is_default(participant.outbox, participant.kind)
