"""The alarm floor: the alarms of a device's own contract, which no contract from the cloud may take away.

The contract in the device's image is the source of the floor. An offered contract is refused where a call for
help, accepted and routed under the image's contract, could be refused, lost, delayed or left on the device
under the offered one. docs/adr/0020-alarm-floor.md explains why this is a floor and not a signature.

What counts as a call for help: events of the types with priority `urgent`; what the outboxes with priority
`urgent` send without a priority of its type; and whatever the image leads to an inbox with priority `urgent`.
An event that is urgent only by its `severitynumber` has no floor; nor have replies and dead letters, which
everybody may send.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    EventType,
    Forward,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    SchemaCheck,
    WhenFull,
    names_type,
)
from eventplane.contract.canonical import Problem, canonical_bytes
from eventplane.contract.possibilities import of_type, possible
from eventplane.envelope import Sender
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix
from eventplane.names import CANARY_ALARM
from eventplane.sending import SendingRights

REMEDY: Final = "put it back; to take an alarm away, devices need a new image"

_ANY: Final = "*"
"""The family of all types: what a participant without `sends` sends."""

_ALWAYS: Final = All(())
_NEVER: Final = Any(())


def floor_problems(image: Contract, offered: Contract) -> tuple[Problem, ...]:
    """Return what `offered` takes away of the alarms that devices with the contract `image` have.

    Each problem names the place in the offered contract, and what was there in the image's.
    """
    return tuple(dict.fromkeys(_Floor(image, offered).problems()))


def urgent_types(image: Contract, service: Participant) -> Iterator[str]:
    """Yield the types, and families of types, of a service's events that are urgent on whatever route.

    A family ends in `.*`; `*` stands for all that no participant names.
    """
    rights = SendingRights(image)
    for each in image.event_types.values():
        if each.priority is Priority.URGENT and rights.may_send(Sender(service=service.name), each.name):
            yield each.name
    for name in (*_named_types(service), *service.asks):
        declared = image.event_types.get(name)
        if service.outbox.priority is Priority.URGENT and not (declared and declared.priority):
            yield name


def _named_types(service: Participant) -> tuple[str, ...]:
    return (_ANY,) if service.sends is None else service.sends


class _Floor:
    """The comparison of one pair of contracts."""

    def __init__(self, image: Contract, offered: Contract) -> None:
        self._image = image
        self._offered = offered
        self._services = list(image.of_kind(ParticipantKind.DEVICE_SERVICE))
        self._routes = image.routes_at(Place.DEVICE)
        self._offered_routes = offered.routes_at(Place.DEVICE)
        self._uplink = image.device.outbox
        self._urgent = [each.name for each in image.event_types.values() if each.priority is Priority.URGENT]
        self._alarms = {each.name: list(self._alarms_of(each)) for each in self._services}
        """The types and families of types of each service's calls for help."""
        called = dict.fromkeys([*self._urgent, *chain(*self._alarms.values())])
        # The canary's alarm is urgent, and no home sends it.
        self._lasting = [each for each in called if each != CANARY_ALARM]

    def problems(self) -> Iterator[Problem]:
        if not self._lasting and not any(map(self._is_urgent_route, self._routes)):
            return
        device = self._offered.participants.get(self._image.device.name)
        if device is None or device.kind is not ParticipantKind.DEVICE:
            yield _problem(f"participants.{self._image.device.name}", "the device has another name")
            return
        for route in self._routes:
            if route.destination == self._uplink.address:
                yield from self._uplink_problems(route)
            elif self._is_urgent_route(route) or any(self._takes(route, each) for each in self._lasting):
                yield from self._route_problems(route)
        for service in self._services:
            if self._alarms[service.name]:
                yield from self._sender_problems(service)
        yield from self._priority_problems()

    # What the floor is made of

    def _alarms_of(self, service: Participant) -> Iterator[str]:
        yield from urgent_types(self._image, service)
        for each in (*_named_types(service), *service.asks):
            if any(self._is_urgent_route(route) and self._takes(route, each) for route in self._routes):
                yield each

    def _is_urgent_route(self, route: Route) -> bool:
        if route.destination == self._uplink.address:
            return False
        return self._image.channel(route.destination).priority is Priority.URGENT

    def _takes(self, route: Route, types: str) -> bool:
        return True in _answers(route.filter, types)

    # Routes, and where they lead

    def _route_problems(self, route: Route) -> Iterator[Problem]:
        path = f"routes.{route.name}"
        kept = [each for each in self._offered_routes if each.destination == route.destination]
        covering = [each for each in kept if _covers(each.filter, route.filter)]
        if not covering:
            what = "it takes less than in" if kept else "it is missing, and leads alarms in"
            yield _problem(path, f"{what} the device's own contract: alarms to {route.destination}")
            return
        if not any(each.interest in (None, route.interest) for each in covering):
            yield _problem(f"{path}.interest", "it can hold alarms back")
        if not any(_promises(each, route) for each in covering):
            yield _problem(f"{path}.delivery_guarantee", "it promises less for alarms")
        yield from self._channel_problems(route.destination)

    def _uplink_problems(self, route: Route) -> Iterator[Problem]:
        up = [each for each in self._offered_routes if each.destination == self._uplink.address]
        open_up = [each for each in up if each.interest in (None, route.interest) and _promises(each, route)]
        taken = [each for each in self._lasting if self._takes(route, each)]
        if not any(_covers(each.filter, route.filter) for each in open_up):
            for types in taken:
                if not any(_answers(each.filter, types) == {True} for each in open_up):
                    yield _problem(
                        f"routes.{route.name}",
                        f"no route is sure to take every event of {types} to the cloud",
                    )
        if not taken:
            return
        yield from self._channel_problems(self._uplink.address)
        after = self._offered.device.outbox
        if not set(taken) - set(self._urgent):
            # Urgent events wait for no batch, and are forwarded whatever is wanted (eventplane.interest).
            return
        if after.forward is not self._uplink.forward is Forward.ALL:
            yield _problem(f"participants.{self._uplink.address}.forward", "it can hold alarms back")
        if after.batching_delay_ms > self._uplink.batching_delay_ms:
            yield _problem(
                f"participants.{self._uplink.address}.batching_delay_ms",
                f"alarms wait {after.batching_delay_ms} ms for a batch, and waited "
                f"{self._uplink.batching_delay_ms} ms",
            )

    def _channel_problems(self, address: str) -> Iterator[Problem]:
        before = self._image.channel(address)
        participant = self._offered.participants.get(before.participant)
        if participant is None or participant.kind is not self._image.participants[before.participant].kind:
            yield _problem(f"participants.{before.participant}", "it takes part in alarms, and is not there")
            return
        after = next((each for each in participant.channels if each.box == before.box), None)
        if after is None:
            yield _problem(f"participants.{address}", "the channel is missing")
            return
        for setting, message in weaknesses(before, after):
            yield _problem(f"participants.{address}.{setting}", message)

    # Who calls for help

    def _sender_problems(self, service: Participant) -> Iterator[Problem]:
        path = f"participants.{service.name}"
        after = self._offered.participants.get(service.name)
        if after is None or after.kind is not service.kind:
            yield _problem(path, "it raises alarms, and is not there")
            return
        yield from self._channel_problems(service.outbox.address)
        waits_ms, waited_ms = after.outbox.batching_delay_ms, service.outbox.batching_delay_ms
        if waits_ms > waited_ms and not set(self._alarms[service.name]) <= set(self._urgent):
            yield _problem(
                f"{path}.outbox.batching_delay_ms",
                f"alarms wait {waits_ms} ms for a batch, and waited {waited_ms} ms",
            )
        yield from self._mapping_problems(service, after)
        rights = SendingRights(self._offered)
        for types in self._alarms[service.name]:
            if types == _ANY:
                yield from self._silent_sender_problems(service, after)
            elif types.endswith(".*"):
                if not names_type(after.named_types, types):
                    yield _problem(f"{path}.sends", f"it does not name {types} any more")
            elif not rights.may_send(Sender(service=service.name), types):
                yield _problem(f"{path}.sends", f"it may not send {types} any more")
            if types in service.asks and not names_type(after.asks, types):
                # The client library refuses a request of one that may not ask, before anything is sent.
                yield _problem(f"{path}.asks", f"it does not name {types} any more")

    def _mapping_problems(self, service: Participant, after: Participant) -> Iterator[Problem]:
        # As texts: to Python 1 is true.
        kept = {canonical_bytes(each._asdict()) for each in after.mappings}
        for each in service.mappings:
            is_alarm = _calls_for_help(self._alarms[service.name], each.type)
            if is_alarm and canonical_bytes(each._asdict()) not in kept:
                path = f"participants.{service.name}.mappings.{each.name}"
                yield _problem(path, "it makes alarms, and is not the same")

    def _silent_sender_problems(self, service: Participant, after: Participant) -> Iterator[Problem]:
        """A service without `sends` may send what nobody names: others must not begin to name its alarms."""
        if after.sends is not None:
            yield _problem(f"participants.{after.name}.sends", "it may not send everything any more")
        known = {name for each in self._image.participants.values() for name in each.named_types}
        for other in self._offered.participants.values():
            for types in other.named_types:
                if (
                    types not in known
                    and other.name != service.name
                    and any(self._takes(each, types) for each in self._routes)
                ):
                    yield _problem(
                        f"participants.{other.name}.sends",
                        f"it takes {types} from {service.name}, which may send it",
                    )

    # What overtakes what

    def _priority_problems(self) -> Iterator[Problem]:
        for name in self._urgent:
            after = self._offered.event_types.get(name)
            if after is None or after.priority is not Priority.URGENT:
                yield _problem(f"event_types.{name}.priority", "it is not urgent any more")
            if after is not None:
                yield from self._type_problems(self._image.event_types[name], after)
        for after in self._offered.event_types.values():
            before = self._image.event_types.get(after.name)
            yield from self._promise_problems(before, after)
            if after.name not in self._urgent:
                yield from self._rank_problems(before.priority if before else None, after)
        for participant in (self._image.device, *self._services):
            other = self._offered.participants.get(participant.name)
            if other and other.outbox.priority is Priority.URGENT is not participant.outbox.priority:
                yield _problem(
                    f"participants.{other.outbox.address}.priority",
                    "more events become urgent, and alarms wait for them",
                )

    def _type_problems(self, before: EventType, after: EventType) -> Iterator[Problem]:
        path = f"event_types.{after.name}"
        if _CHECKS.index(after.schema_check) > _CHECKS.index(before.schema_check):
            yield _problem(f"{path}.schema_check", "payloads are checked that were not")
        if self._offered.downlink(after.name) is not self._image.downlink(after.name):
            yield _problem(f"{path}.downlink", "it goes down otherwise")

    def _promise_problems(self, before: EventType | None, after: EventType) -> Iterator[Problem]:
        """A type of alarms whose events become best effort where their route declares nothing."""
        is_alarm = _calls_for_help(self._lasting, after.name)
        if is_alarm and _is_best_effort(after) and not (before and _is_best_effort(before)):
            path = f"event_types.{after.name}.delivery_guarantee"
            yield _problem(path, "it promises less for alarms")

    def _rank_problems(self, before: Priority | None, after: EventType) -> Iterator[Problem]:
        """A type that is not urgent in the image: less urgent than it was, or crowding the alarms."""
        path = f"event_types.{after.name}.priority"
        is_alarm = _calls_for_help(self._lasting, after.name)
        if is_alarm and after.priority is not before and not _is_at_least(after.priority, before):
            yield _problem(
                path, f"it is {after.priority or 'left to the event'}, and was {before or 'not set'}"
            )
        if after.priority is not Priority.URGENT or is_alarm:
            return
        known = after.name in self._image.event_types
        for each in (self._image.device, *self._services):
            if known if each.sends is None else names_type(each.sends, after.name):
                yield _problem(path, "more events become urgent, and alarms wait for them")


_CHECKS: Final = (SchemaCheck.NONE, SchemaCheck.KNOWN, SchemaCheck.STRICT)


def _problem(path: str, message: str) -> Problem:
    return Problem(path, message, REMEDY)


def weaknesses(before: Channel, after: Channel) -> Iterator[tuple[str, str]]:
    """The settings by which a channel delivers less than before, or later."""
    if before.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE is not after.delivery_guarantee:
        yield "delivery_guarantee", f"it is {after.delivery_guarantee}"
    if after.priority.rank > before.priority.rank:
        yield "priority", f"it is {after.priority}, and was {before.priority}"
    if after.expiry_s is not None and (before.expiry_s is None or after.expiry_s < before.expiry_s):
        yield "expiry_s", f"alarms expire after {after.expiry_s} s"
    if before.when_full is WhenFull.REFUSE is not after.when_full:
        yield "when_full", f"it is {after.when_full}"
    for setting in ("transport", "ordering", "receipts"):
        is_more = setting == "receipts" and after.receipts and after.box == "outbox"
        if getattr(before, setting) != getattr(after, setting) and not is_more:
            yield setting, f"it is {getattr(after, setting)}, and was {getattr(before, setting)}"


def _promises(after: Route, before: Route) -> bool:
    """Whether no delivery becomes best effort by what a route declares instead of `before`."""
    if _is_best_effort(before):
        return True
    # What a route leaves out, the type of the event decides.
    is_kept = before.delivery_guarantee is None and not _is_best_effort(after)
    return is_kept or after.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE


def _is_best_effort(declares: Route | EventType) -> bool:
    return declares.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT


def _is_at_least(after: Priority | None, before: Priority | None) -> bool:
    """Whether a type's priority is no less than before; one that is not set is that of event or channel."""
    if before is None:
        return after is Priority.URGENT
    return after.rank <= before.rank if after else before is Priority.LOW


def _covers(wide: Filter, narrow: Filter) -> bool:
    """Whether `wide` is the same filter, or has every alternative of `narrow` among its own."""
    if wide == narrow:
        return True
    needed = narrow.filters if isinstance(narrow, Any) else (narrow,)
    return isinstance(wide, Any) and all(each in wide.filters for each in needed)


def _calls_for_help(alarms: Collection[str], event_type: str) -> bool:
    return names_type(alarms, event_type) or _ANY in alarms


def _answers(filter: Filter, types: str) -> frozenset[bool]:
    """The answers that events of `types`, a type or a family, could get from `filter`."""
    if types != _ANY and not types.endswith(".*"):
        return possible(filter, of_type(types))
    return possible(_within(filter, types[:-1]), {"specversion": "1.0"})


def _within(filter: Filter, prefix: str) -> Filter:
    """The filter for types with a common `prefix`: what that decides of it is decided."""
    if isinstance(filter, Not):
        return Not(_within(filter.filters[0], prefix))
    if isinstance(filter, All | Any):
        return type(filter)(tuple(_within(each, prefix) for each in filter.filters))
    if isinstance(filter, Exact) and filter.attribute == "type":
        return filter if filter.value.startswith(prefix) else _NEVER
    if isinstance(filter, Prefix) and filter.attribute == "type":
        if prefix.startswith(filter.value):
            return _ALWAYS
        return filter if filter.value.startswith(prefix) else _NEVER
    return filter
