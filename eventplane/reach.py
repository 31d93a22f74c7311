"""Reach: who receives events of a type, given who sends them, over every hop.

An event enters at the router on its sender's side. The device's outbox (the uplink) brings it to the cloud's
router, the device's inbox (the downlink) to a device's. Nothing that comes from a device goes down, and what
came down does not go up again. Only routes and `sends` decide here; expiry, payload schemas, the address of
an event for devices and failures are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.attributes import Attributes
from eventplane.contract import Channel, Contract, Participant, ParticipantKind, Place, Route
from eventplane.contract.participants import reply_routes
from eventplane.contract.possibilities import Takes, can_match, needed, of_type, possible
from eventplane.filters import All, Filter, attribute_names
from eventplane.hops import ROUTER_HOPS
from eventplane.names import (
    EPOCH,
    FOLLOWED_CONTRACT,
    ORDER,
    ORDER_EPOCH,
    SENDER_DEVICE,
    SENDER_SERVICE,
    SEQUENCE,
)
from eventplane.sending import SendingRights

_Routes = tuple[Route, ...]

_STAMPED: Final = frozenset(
    {SENDER_DEVICE, EPOCH, SEQUENCE, FOLLOWED_CONTRACT, ORDER, ORDER_EPOCH, ROUTER_HOPS}
)
"""Attributes that the plane sets between two routers, so that what one needs may be missing at the other."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a receiver: `routes` in their order, the last of which leads into `channel`.

    `conditions` are those of the routes that some events of the type do not pass.
    """

    channel: Channel
    routes: tuple[Route, ...]
    conditions: tuple[Route, ...]

    @property
    def is_certain(self) -> bool:
        """True if every event of the type passes all filters of the way."""
        return not self.conditions

    def __str__(self) -> str:
        return " -> ".join(each.name for each in self.routes)


@dataclass(frozen=True, slots=True)
class Flow:
    """Events of one type: the participants that declare to send it, and all ways to those who receive it."""

    senders: tuple[Participant, ...]
    ways: tuple[Way, ...]


def flows(contract: Contract) -> Mapping[str, Flow]:
    """Return the flow of each declared event type."""
    reach = Reachability(contract)
    return {name: reach.flow(name) for name in contract.event_types}


def place_of(participant: Participant) -> Place:
    """Return where the participant's events meet their first router."""
    return Place.DEVICE if participant.kind.is_on_device else Place.CLOUD


def ways_to_lead(contract: Contract, address: str) -> list[str]:
    """Return what people can change so that a channel gets more events, as phrases."""
    by_compiler = reply_routes(contract.participants)
    names = [each.name for each in contract.routes if each.destination == address]
    written = [each for each in names if each not in by_compiler]
    return [*([f"let {' or '.join(written)} take it"] if written else []), f"add a route to {address}"]


def types_of(filter: Filter, types: Iterable[str]) -> frozenset[str]:
    """Return those of `types` that the filter can take."""
    return frozenset(each for each in types if can_match(filter, of_type(each)))


def sequences(
    contract: Contract, entry: Place, is_from_device: bool, passes: Callable[[tuple[Route, ...]], bool]
) -> Iterator[tuple[Route, ...]]:
    """Return the routes that events take that enter at `entry`, in their order, to each channel on the way.

    `passes` decides whether an event takes the last of some routes after it took the others.
    """
    uplink, downlink = contract.device.outbox.address, contract.device.inbox.address
    relays = {uplink: Place.CLOUD} if is_from_device else {downlink: Place.DEVICE}
    waiting: list[tuple[Place, tuple[Route, ...]]] = [(entry, ())]
    for place, passed in waiting:
        for route in contract.routes_at(place):
            if route.destination in (uplink, downlink) and (passed or route.destination not in relays):
                continue
            routes = (*passed, route)
            if passes(routes):
                yield routes
                if route.destination in relays:
                    waiting.append((relays[route.destination], routes))


class Reachability:
    """The reach of the events of one contract. Make one and keep it: a thousand routes take their time."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.rights = SendingRights(contract)
        self.takes: Takes = {
            route.name: types_of(route.filter, contract.event_types) for route in contract.routes
        }
        """The declared types that each route can take."""
        self._reads_sender = any(SENDER_SERVICE in attribute_names(each.filter) for each in contract.routes)
        self._found: dict[tuple[str, Place, str], tuple[Way, ...]] = {}

    def named_types(self, participant: Participant) -> list[str]:
        """Return the types under `sends` and `asks`: of a family, those that the contract has."""
        known = self._contract.event_types
        declared = [each for each in known if participant.may_send(each) or participant.may_ask(each)]
        named = [each for each in participant.named_types if not each.endswith(".*")]
        return list(dict.fromkeys([*declared, *named]))

    def flow(self, event_type: str) -> Flow:
        """Return who declares to send events of `event_type`, and their ways, whoever may send them."""
        known = of_type(event_type)
        found = {
            way.routes: way.channel
            for sender in sorted(
                self.rights.senders(event_type), key=lambda each: list(Place).index(place_of(each))
            )
            for way in self.ways(event_type, sender)
        }
        ways = (Way(channel, routes, _conditions(routes, known)) for routes, channel in found.items())
        return Flow(self.rights.declared_senders(event_type), tuple(ways))

    def ways(self, event_type: str, sender: Participant) -> tuple[Way, ...]:
        """Return every way of events of `event_type` from `sender` to a channel that somebody reads."""
        place = place_of(sender)
        of_device = sender.kind is ParticipantKind.DEVICE
        key = event_type, place, sender.name if self._reads_sender or of_device else ""
        if key not in self._found:
            known = {**of_type(event_type), SENDER_SERVICE: sender.name}
            found: list[tuple[_Routes, _Routes]] = [
                (routes, ()) for routes in self._sequences(event_type, place, sender, known)
            ]
            first = tuple(dict.fromkeys(routes[0] for routes, _ in found))
            if of_device and _conditions(first, known) == first:
                # A forwarder sends up its own reports that no route of the device takes.
                up = self._sequences(event_type, Place.CLOUD, sender, known)
                found += [(routes, first) for routes in up]
            self._found[key] = tuple(
                Way(
                    self._contract.channel(routes[-1].destination),
                    routes,
                    (*more, *_conditions(routes, known)),
                )
                for routes, more in found
                # The uplink is on the way; nobody reads it.
                if routes[-1].destination != self._contract.device.outbox.address
            )
        return self._found[key]

    def goes_down(self, participant: Participant) -> bool:
        """Return whether a participant declares to send a type that a route can lead down to devices."""
        inbox = self._contract.device.inbox
        return any(
            way.channel is inbox
            for each in self.named_types(participant)
            for way in self.ways(each, participant)
        )

    def _sequences(
        self, event_type: str, entry: Place, sender: Participant, known: Attributes
    ) -> Iterator[tuple[Route, ...]]:
        return sequences(
            self._contract,
            entry,
            sender.kind.is_on_device,
            lambda routes: self._can_pass(event_type, routes, known),
        )

    def _can_pass(self, event_type: str, routes: Sequence[Route], known: Attributes) -> bool:
        if event_type in self._contract.event_types and event_type not in self.takes[routes[-1].name]:
            return False
        whole = All(tuple(each.filter for each in routes))
        same = {name: value for name, value in needed(whole).items() if name not in _STAMPED}
        return can_match(whole, {**same, **known})


def _conditions(routes: Iterable[Route], known: Attributes) -> tuple[Route, ...]:
    return tuple(
        each for each in routes if possible(each.filter, known) != {True} or each.interest is not None
    )
