"""Prove that some reader gets every event of each type of alarm, or find one that none gets.

The device routes by the contract in its image until it has the one that is offered, and by that one from
then on; the cloud routes by the offered one. An alarm has arrived where a route leads it, at least once, into
the inbox of a service, at home or in the cloud. Only filters and rights decide here: an invalid payload, the
expiry of an event, and failures are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any as Json
from typing import Final

from contract.filter_search import Known, at_routers, completed, search
from eventplane.alarm_floor import urgent_types
from eventplane.attributes import AttributeValue
from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    names_type,
)
from eventplane.contract.possibilities import of_type, possible
from eventplane.device_reports import PLANE_TYPES
from eventplane.envelope import Sender
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix
from eventplane.guarantee import guarantee_of_type
from eventplane.names import CANARY_ALARM, OWN_SERVICES, REPLY_TYPE, SENDER_DEVICE, SENDER_SERVICE
from eventplane.sending import SendingRights

_ANY: Final = "*"
_ALWAYS: Final = All(())
_NEVER: Final = Any(())


class ProofOutcome(StrEnum):
    """The outcome of a proof."""

    PROVEN = "proven"
    COUNTER_EXAMPLE = "counter_example"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Proof:
    """The `outcome` for events of the type, or family of types, `alarm` that `sender` sends.

    `image` is the version by which the device routes, None of what a cloud service sends. `event` are the
    attributes of one that no reader gets. `reason` says why that is, or why it is undecided.
    """

    alarm: str
    sender: str
    image: str | None
    outcome: ProofOutcome
    event: Mapping[str, AttributeValue] | None = None
    reason: str = ""

    def document(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {
            "alarm": self.alarm,
            "sender": self.sender,
            "image": self.image,
            "outcome": self.outcome.value,
            "event": self.event,
            "reason": self.reason or None,
        }


def prove(contract: Contract, images: Sequence[Contract] = ()) -> Iterator[Proof]:
    """Yield a proof for each alarm, its sender, and each of `images` beside `contract` itself."""
    for image in {each.version: each for each in (contract, *images)}.values():
        for service in image.of_kind(ParticipantKind.DEVICE_SERVICE):
            for each in dict.fromkeys(urgent_types(image, service)):
                if each != CANARY_ALARM:
                    yield _Claim(image, contract, service, each).proof(image.version)
    for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        for each in dict.fromkeys(urgent_types(contract, service)):
            # One without `sends` may send any type that no participant names: it need not do so.
            is_named = service.may_send(each) or service.may_ask(each)
            if is_named and service.name not in OWN_SERVICES:
                yield _Claim(contract, contract, service, each).proof(None)


class _Claim:
    """The claim that events of `alarm` from `sender` reach a reader; `image` routes at home."""

    def __init__(self, image: Contract, contract: Contract, sender: Participant, alarm: str) -> None:
        self._alarm = alarm
        self._sender = sender
        self._on_device = sender.kind.is_on_device
        uplink = image.device.outbox
        at_home = [*_ways(image, Place.DEVICE, sender.outbox, alarm)] if self._on_device else []
        over = contract.device.outbox if self._on_device else sender.outbox
        self._allowed = _allowed(contract, sender, alarm)
        self.local = _either(way for to, way in at_home if _is_reader(image, to, sender))
        self.up = _either(way for to, way in at_home if to == uplink) if self._on_device else _ALWAYS
        readers = _either(
            way for to, way in _ways(contract, Place.CLOUD, over, alarm) if _is_reader(contract, to, sender)
        )
        self.cloud: Filter = All((self._allowed, readers))
        self.where = _domain(image, sender, alarm)

    def proof(self, image: str | None) -> Proof:
        proof = partial(Proof, self._alarm, self._sender.name, image)
        fixed = {
            **({} if _is_family(self._alarm) else of_type(self._alarm)),
            SENDER_SERVICE: self._sender.name,
        }
        found = search(
            (self.where, self.local, self.up, self.cloud),
            self._arrives,
            self._is_counter_example,
            fixed if self._on_device else {**fixed, SENDER_DEVICE: None},
        )
        if found.event is not None:
            return proof(ProofOutcome.COUNTER_EXAMPLE, completed(found.event), self._reason(found.event))
        if found.problem:
            return proof(ProofOutcome.UNDECIDED, reason=found.problem)
        return proof(ProofOutcome.PROVEN)

    def _arrives(self, known: Known) -> frozenset[bool]:
        """Return whether events with `known` attributes reach a reader, or are no such alarms."""
        if self._on_device and SENDER_DEVICE in known and known[SENDER_DEVICE] is None:
            return frozenset({True})
        at_home = {**known, SENDER_DEVICE: None} if self._on_device else known
        sides = possible(self.up, at_home), possible(self.cloud, known)
        settled = possible(Any((self.local, Not(self.where))), at_home)
        return frozenset(home or (up and cloud) for home in settled for up in sides[0] for cloud in sides[1])

    def _is_counter_example(self, event: Mapping[str, AttributeValue]) -> bool:
        """Return whether a valid event is such an alarm, and the filters themselves bring it to no reader."""
        if (seen := at_routers(event, comes_up=self._on_device)) is None:
            return False
        at_home, above = seen
        reached = self.local.matches(at_home) or (self.up.matches(at_home) and self.cloud.matches(above))
        return self.where.matches(at_home) and not reached

    def _reason(self, event: Mapping[str, AttributeValue]) -> str:
        if not self._allowed.matches(completed(event)):
            return f"the cloud refuses it: {self._sender.name} may not send it"
        named = {name: each for name, each in completed(event).items() if name != SENDER_DEVICE}
        if not self.up.matches(named):
            return "no route at home takes it, neither to an inbox nor to the cloud"
        return "no route leads it to a reader, at home or in the cloud"


def _ways(contract: Contract, place: Place, over: Channel, alarm: str) -> Iterator[tuple[Channel, Filter]]:
    """Yield where routes promise to deliver such events that came in `over` a channel, and which of them."""
    declared = contract.event_types.get(alarm)
    # Urgent types are forwarded whatever a reader announced.
    is_urgent = declared is not None and declared.priority is Priority.URGENT
    family = contract.event_types if _is_family(alarm) else ()
    for route in contract.routes_at(place):
        weak = [
            each
            for each in (alarm, *family)
            if guarantee_of_type(contract, each, False, over, route) is DeliveryGuarantee.BEST_EFFORT
        ]
        if alarm not in weak:
            interest = _ALWAYS if is_urgent or route.interest is None else route.interest
            yield contract.channel(route.destination), All((route.filter, interest, _but(weak)))


def _either(filters: Iterable[Filter]) -> Filter:
    return Any(tuple(filters))


def _is_reader(contract: Contract, channel: Channel, sender: Participant) -> bool:
    """Return whether another service reads a channel; of what a cloud service sends, also a device."""
    owner = contract.participants[channel.participant]
    is_down = owner is contract.device and not sender.kind.is_on_device
    is_service = owner.kind is not ParticipantKind.DEVICE and owner.name not in (*OWN_SERVICES, sender.name)
    return channel.box == "inbox" and not owner.retired and (is_service or is_down)


def _is_family(alarm: str) -> bool:
    return alarm == _ANY or alarm.endswith(".*")


def _allowed(contract: Contract, sender: Participant, alarm: str) -> Filter:
    """Return the filter of what `contract` lets a participant of its name send of a type or family."""
    participant = contract.participants.get(sender.name)
    if participant is None or participant.kind.is_on_device is not sender.kind.is_on_device:
        return _NEVER
    if not _is_family(alarm):
        return _ALWAYS if SendingRights(contract).may_send(Sender(service=sender.name), alarm) else _NEVER
    own = participant.named_types
    if names_type(own, alarm):
        return _ALWAYS
    # Each type of a family is judged where it is declared.
    if participant.sends is not None:
        return _NEVER
    others = {name for each in contract.participants.values() for name in each.named_types} - {*own}
    return _but(sorted(others))


def _domain(image: Contract, sender: Participant, alarm: str) -> Filter:
    """Return the filter of the alarms of a type or family: of a family without what is no alarm of it.

    Types with a priority are judged by themselves, where they are alarms. Replies are none, nor is what the
    plane reports.
    """
    if not _is_family(alarm):
        return _ALWAYS
    judged = [each.name for each in image.event_types.values() if each.priority is not None]
    family: Filter = _ALWAYS if alarm == _ANY else _of_types(alarm)
    return All((family, _but([*judged, *sorted(PLANE_TYPES), REPLY_TYPE]), _allowed(image, sender, alarm)))


def _but(types: Iterable[str]) -> Filter:
    return Not(Any(tuple(map(_of_types, types))))


def _of_types(types: str) -> Filter:
    return Prefix("type", types[:-1]) if types.endswith(".*") else Exact("type", types)
