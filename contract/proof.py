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

from contract.filter_search import Known, search
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
    Route,
)
from eventplane.contract.possibilities import of_type, possible
from eventplane.envelope import Sender, write_event
from eventplane.errors import EnvelopeError
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix
from eventplane.guarantee import guarantee_of_type
from eventplane.names import CANARY_ALARM, OWN_SERVICES, SENDER_DEVICE, SENDER_SERVICE
from eventplane.sending import SendingRights

_ANY: Final = "*"
_ALWAYS: Final = All(())
_DEVICE: Final = "home-1"
_UNNAMED: Final[Mapping[str, AttributeValue]] = {
    "specversion": "1.0", "id": "1", "source": "/counter-example", "type": "org.example.any",
}  # fmt: skip
"""What a counter-example has where no filter looks."""


class Outcome(StrEnum):
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
    outcome: Outcome
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
    rights = SendingRights(contract)
    for name, declared in contract.event_types.items():
        for participant in rights.declared_senders(name) if declared.priority is Priority.URGENT else ():
            if participant.kind is ParticipantKind.CLOUD_SERVICE and participant.name not in OWN_SERVICES:
                yield _Claim(contract, contract, participant, name).proof(None)


class _Claim:
    """The claim that events of `alarm` from `sender` reach a reader; `image` routes at home."""

    def __init__(self, image: Contract, contract: Contract, sender: Participant, alarm: str) -> None:
        self._alarm = alarm
        self._sender = sender
        self._on_device = sender.kind.is_on_device
        uplink = image.device.outbox
        leading = partial(_leading, event_type=alarm)
        at_home = leading(image, Place.DEVICE, sender.outbox) if self._on_device else []
        in_cloud = leading(contract, Place.CLOUD, uplink if self._on_device else sender.outbox)
        up = [each for each in at_home if each.destination == uplink.address]
        origin = Sender(_DEVICE if self._on_device else "", sender.name)
        self._is_allowed = _may_send(contract, origin, alarm)
        self.local = _either(image, alarm, (each for each in at_home if _is_reader(image, each)))
        self.up = _either(image, alarm, up) if self._on_device else _ALWAYS
        readers = (each for each in in_cloud if _is_reader(contract, each, is_down=not self._on_device))
        self.cloud = _either(contract, alarm, readers) if self._is_allowed else Any(())
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
            return proof(Outcome.COUNTER_EXAMPLE, _named(found.event), self._reason(found.event))
        if found.problem:
            return proof(Outcome.UNDECIDED, reason=found.problem)
        return proof(Outcome.PROVEN)

    def _arrives(self, known: Known) -> frozenset[bool]:
        """Return whether events with `known` attributes reach a reader, or are no such alarms."""
        if self._on_device and SENDER_DEVICE in known and known[SENDER_DEVICE] is None:
            return frozenset({True})
        at_home = {**known, SENDER_DEVICE: None} if self._on_device else known
        sides = possible(self.up, at_home), possible(self.cloud, known)
        above = frozenset({up and cloud for up in sides[0] for cloud in sides[1]})
        alternatives = possible(self.local, at_home), above, _negated(possible(self.where, at_home))
        return frozenset(
            home or cloud or other
            for home in alternatives[0]
            for cloud in alternatives[1]
            for other in alternatives[2]
        )

    def _is_counter_example(self, event: Mapping[str, AttributeValue]) -> bool:
        """Return whether a valid event is such an alarm, and the filters themselves bring it to no reader."""
        try:
            above = write_event(_named(event)).attributes
        except EnvelopeError:
            return False
        at_home = {name: value for name, value in above.items() if name != SENDER_DEVICE}
        if self._on_device:
            above = {SENDER_DEVICE: _DEVICE, **above}
        reached = self.local.matches(at_home) or (self.up.matches(at_home) and self.cloud.matches(above))
        return self.where.matches(at_home) and not reached

    def _reason(self, event: Mapping[str, AttributeValue]) -> str:
        if not self._is_allowed:
            return f"the cloud refuses it: {self._sender.name} may not send it"
        named = {name: each for name, each in _named(event).items() if name != SENDER_DEVICE}
        if not self.up.matches(named):
            return "no route at home takes it, neither to an inbox nor to the cloud"
        return "no route leads it to a reader, at home or in the cloud"


def _leading(contract: Contract, place: Place, over: Channel, *, event_type: str) -> list[Route]:
    """Return the routes that promise to deliver such events, which came in `over` a channel."""
    promised = DeliveryGuarantee.AT_LEAST_ONCE
    return [
        each
        for each in contract.routes_at(place)
        if guarantee_of_type(contract, event_type, False, over, each) is promised
    ]


def _is_reader(contract: Contract, route: Route, *, is_down: bool = False) -> bool:
    """Return whether a service reads what a route leads to; `is_down`: or a device, which stores it."""
    channel = contract.channel(route.destination)
    owner = contract.participants[channel.participant]
    is_service = owner.kind is not ParticipantKind.DEVICE and owner.name not in OWN_SERVICES
    return (
        channel.box == "inbox"
        and not owner.retired
        and (is_service or (is_down and owner is contract.device))
    )


def _either(contract: Contract, alarm: str, routes: Iterable[Route]) -> Filter:
    declared = contract.event_types.get(alarm)
    # Urgent types are forwarded whatever a reader announced.
    is_urgent = declared is not None and declared.priority is Priority.URGENT
    return Any(
        tuple(
            each.filter if is_urgent or each.interest is None else All((each.filter, each.interest))
            for each in routes
        )
    )


def _is_family(alarm: str) -> bool:
    return alarm == _ANY or alarm.endswith(".*")


def _may_send(contract: Contract, sender: Sender, alarm: str) -> bool:
    participant = contract.participants.get(sender.service)
    if _is_family(alarm):
        # Each type of a family is judged where it is declared.
        named = participant.sends if participant else ()
        return named is None or any(_covers(each, alarm) for each in named or ())
    return SendingRights(contract).may_send(sender, alarm)


def _covers(named: str, alarm: str) -> bool:
    return named == alarm or (named.endswith(".*") and alarm.startswith(named[:-1]))


def _domain(image: Contract, sender: Participant, alarm: str) -> Filter:
    """Return the filter of the alarms of a type or family: of a family without what is no alarm of it."""
    if not _is_family(alarm):
        return _ALWAYS
    calm = [
        Exact("type", each.name)
        for each in image.event_types.values()
        if each.priority is not None and each.priority is not Priority.URGENT
    ]
    others = [
        _of_types(each)
        for other in image.participants.values()
        if other is not sender and alarm == _ANY
        for each in (*(other.sends or ()), *other.asks)
    ]
    family: Filter = _ALWAYS if alarm == _ANY else _of_types(alarm)
    return All((family, Not(Any((*calm, *others)))))


def _of_types(types: str) -> Filter:
    return Prefix("type", types[:-1]) if types.endswith(".*") else Exact("type", types)


def _negated(answers: frozenset[bool]) -> frozenset[bool]:
    return frozenset(not each for each in answers)


def _named(event: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {**_UNNAMED, **event}
