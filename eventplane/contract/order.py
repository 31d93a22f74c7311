"""Warnings about events that come into an inbox with `ordering: source` in no order."""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Participant
from eventplane.contract.possibilities import Takes, can_match, of_type
from eventplane.contract.vocabulary import DeliveryGuarantee, Ordering, ParticipantKind, Place, Transport
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.names import OWN_SERVICES


def lost_order(contract: Contract, takes: Takes) -> Iterator[Problem]:
    """Participants whose events an ordered inbox in the cloud gets in any order; `takes` is from `taken`.

    What a participant sends is known by its `sends`; of one that does not say, nothing is reported, but where
    nobody on the device says it.
    """
    for address in sorted({each.destination for each in contract.routes_at(Place.CLOUD)}):
        inbox = contract.channel(address)
        if inbox.ordering is not Ordering.SOURCE:
            continue
        led = [each for each in contract.routes_at(Place.CLOUD) if each.destination == address]
        for sender in contract.participants.values():
            types = sorted(
                each
                for each in _sent(contract, sender)
                if any(
                    each in takes[route.name]
                    if each in contract.event_types
                    else can_match(route.filter, of_type(each))
                    for route in led
                )
            )
            if types and (wrong := _problem(contract, sender, inbox.transport)):
                problem, remedy = wrong
                yield Problem(
                    f"participants.{inbox.participant}.inbox.ordering",
                    f"{problem}, so that {', '.join(types)} of {sender.name} come in any order",
                    remedy,
                )
        if inbox.transport is Transport.SQS and any(
            can_match(each.filter, of_type(DEAD_LETTER_TYPE)) for each in led
        ):
            yield Problem(
                f"participants.{inbox.participant}.inbox.ordering",
                "routers do not number their dead letters, so that these come in any order",
                "lead dead letters to another inbox, or count on no order among them",
            )


def _sent(contract: Contract, sender: Participant) -> set[str]:
    """The types that `sender` declares, and that come as far as the cloud's router."""
    if sender.kind is ParticipantKind.DEVICE and not any(
        each.sends is not None for each in contract.participants.values() if each.kind.is_on_device
    ):
        # Nobody on the device says what it sends: any of the types.
        types = set(contract.event_types)
    else:
        types = {each for each in contract.event_types if sender.may_send(each)}
    types |= {each for each in sender.sends or () if not each.endswith(".*")}
    types.discard(DEAD_LETTER_TYPE)
    if not sender.kind.is_on_device:
        return types
    uplink = contract.device.outbox.address
    up = [each.filter for each in contract.routes if each.destination == uplink]
    return {each for each in types if any(can_match(filter, of_type(each)) for filter in up)}


def _problem(contract: Contract, sender: Participant, transport: Transport | str) -> tuple[str, str] | None:
    """Why what `sender` sends has no order in an inbox of this `transport`, and what to do."""
    way = [sender.outbox, *([contract.device.outbox] if sender.kind.is_on_device else [])]
    is_unreliable = any(each.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT for each in way)
    if transport is Transport.SQS_FIFO:
        if sender.kind.is_on_device:
            return (
                "a FIFO queue keeps the order in which routers write, and a device's events come to them by "
                "standard queues",
                "use `transport: sqs`: the device numbers its events, and the reader's client library sorts",
            )
        if sender.outbox.transport is not Transport.SQS_FIFO and sender.name not in OWN_SERVICES:
            return (
                "its outbox is a standard queue",
                "use `transport: sqs_fifo` for the outbox, or `transport: sqs` for this inbox",
            )
    # A forwarder's own reports are stored whatever its outbox says.
    elif is_unreliable and sender.kind is not ParticipantKind.DEVICE:
        return (
            "senders do not number what a best-effort outbox may lose",
            "use `delivery_guarantee: at_least_once` for the outbox, or count on no order among them",
        )
    if sender.name in OWN_SERVICES:
        return (
            "the plane's own services do not number",
            "lead them to another inbox, or count on no order among them",
        )
    return None
