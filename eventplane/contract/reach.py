"""The ways that events can take: from a sender over every hop to those who receive them, and round again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eventplane.contract.model import Channel, Contract, Participant, ParticipantKind, Place, Route
from eventplane.contract.possibilities import Takes, can_match, needed, of_type, possible
from eventplane.contract.reader import Problem
from eventplane.filters import All, Filter


def types_of(filter: Filter, types: Iterable[str]) -> frozenset[str]:
    """Those of `types` that the filter can take."""
    return frozenset(each for each in types if can_match(filter, of_type(each)))


def taken(contract: Contract) -> Takes:
    """The declared types that each route can take. To be asked once: a thousand routes take their time."""
    return {route.name: types_of(route.filter, contract.event_types) for route in contract.routes}


def place_of(participant: Participant) -> Place:
    """Where the participant's events meet their first router."""
    return Place.CLOUD if participant.kind is ParticipantKind.CLOUD_SERVICE else Place.DEVICE


def paths(
    contract: Contract, event_type: str, place: Place, takes: Takes, passed: tuple[Route, ...] = ()
) -> Iterator[tuple[Route, ...]]:
    """Every way of routes that an event may take which enters at `place`; `takes` is from `taken`.

    A way ends at each channel that it reaches, also at one of the device, which passes on what it gets.
    """
    relays = {contract.device.outbox.address: Place.CLOUD, contract.device.inbox.address: Place.DEVICE}
    for route in contract.routes_at(place):
        routes = (*passed, route)
        if not _can_pass(contract, event_type, routes, takes):
            continue
        yield routes
        # A second relay leads back to where the event entered: that is the device's own loop.
        if route.destination in relays and not passed:
            yield from paths(contract, event_type, relays[route.destination], takes, routes)


def _can_pass(contract: Contract, event_type: str, routes: Sequence[Route], takes: Takes) -> bool:
    if event_type in contract.event_types and event_type not in takes[routes[-1].name]:
        return False
    whole = All(tuple(each.filter for each in routes))
    return can_match(whole, {**needed(whole), **of_type(event_type)})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a reader: `routes` in their order, the last of which leads into `channel`.

    `conditions` are those of the routes that look at more than the type, so that not every event of it
    passes.
    """

    channel: Channel
    routes: tuple[Route, ...]
    conditions: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Events of one type: the participants that declare to send it, and all ways to those who receive it."""

    senders: tuple[Participant, ...]
    ways: tuple[Way, ...]


def flows(contract: Contract) -> Mapping[str, Flow]:
    """The flow of each declared event type."""
    takes = taken(contract)
    silent = [each for each in contract.participants.values() if each.sends is None]

    def flow(event_type: str) -> Flow:
        senders = tuple(each for each in contract.participants.values() if each.may_send(event_type))
        found = {
            routes: None
            for place in _entries([*senders, *silent])
            for routes in paths(contract, event_type, place, takes)
        }
        return Flow(senders, tuple(_ways(contract, event_type, found)))

    return {name: flow(name) for name in contract.event_types}


def _entries(senders: Iterable[Participant]) -> list[Place]:
    """Where the events can enter; anywhere, when nobody declares to send them (the routers do)."""
    entries = {place_of(each) for each in senders} or set(Place)
    return [each for each in Place if each in entries]


def _ways(contract: Contract, event_type: str, found: Iterable[tuple[Route, ...]]) -> Iterator[Way]:
    known = of_type(event_type)
    for routes in found:
        channel = contract.channel(routes[-1].destination)
        # The uplink is on the way, nobody's inbox.
        if channel is not contract.device.outbox:
            conditions = tuple(
                each for each in routes if possible(each.filter, known) != {True} or each.interest is not None
            )
            yield Way(channel, routes, conditions)


def sends_down(contract: Contract, participant: Participant) -> bool:
    """Whether a cloud service says that it sends a type that a route can lead down to devices."""
    if participant.kind is not ParticipantKind.CLOUD_SERVICE:
        return False
    down = [each.filter for each in contract.routes if each.destination == contract.device.inbox.address]
    types = [each for each in contract.event_types if participant.may_send(each)]
    types += [each for each in participant.sends or () if not each.endswith(".*")]
    return any(can_match(filter, of_type(each)) for filter in down for each in types)


def relay_loops(contract: Contract, takes: Takes) -> Iterator[Problem]:
    """The device is the one participant that passes events on by itself: up, down, and up again."""
    device = contract.device
    up = [each for each in contract.routes if each.destination == device.outbox.address]
    down = [each for each in contract.routes if each.destination == device.inbox.address]
    for back in down:
        loops = [each.name for each in up if _can_share(each, back, takes, bool(contract.event_types))]
        if loops:
            yield Problem(
                f"routes.{back.name}",
                f"it can send down again what {' or '.join(loops)} sends up: a loop",
                "let the filters exclude each other, by type or by an attribute",
            )


def _can_share(one: Route, other: Route, takes: Takes, declared: bool) -> bool:
    both = All((one.filter, other.filter))
    if not declared:
        return can_match(both, needed(both))
    shared = takes[one.name] & takes[other.name]
    return any(can_match(both, {**needed(both), **of_type(each)}) for each in shared)


@dataclass(frozen=True, slots=True)
class _Hop:
    """`sender` sends `event_type`, which `routes` bring to `reader`."""

    sender: str
    event_type: str
    routes: tuple[Route, ...]
    reader: str

    def __str__(self) -> str:
        return " -> ".join([f"{self.sender} sends {self.event_type}", *(each.name for each in self.routes)])


def service_loops(contract: Contract, takes: Takes) -> Iterator[Problem]:
    """Services that can answer each other for ever, as far as they declare what they send.

    Whether a service answers at all, the contract does not say: a loop here is one that can be. Each
    participant is named in one loop at least, if it stands in any.
    """
    hops = {each.name: list(_hops(contract, each, takes)) for each in contract.participants.values()}
    named: set[str] = set()
    for name in sorted(hops):
        loop = None if name in named else _shortest_loop(name, hops)
        if loop:
            named.update(each.sender for each in loop)
            yield Problem(
                f"participants.{name}.sends",
                f"a loop: {' -> '.join(str(each) for each in loop)} -> {name}",
                "let a route leave out the answer, by type or by an attribute, unless a service ends it",
            )


def _hops(contract: Contract, sender: Participant, takes: Takes) -> Iterator[_Hop]:
    """One hop from `sender` to each of its readers."""
    types = [each for each in contract.event_types if sender.may_send(each)]
    types += [each for each in sender.sends or () if not each.endswith(".*") and each not in types]
    known: set[str] = set()
    for event_type in types:
        for routes in paths(contract, event_type, place_of(sender), takes):
            reader = contract.channel(routes[-1].destination).participant
            # The device is no reader: it passes on what it gets.
            if reader != contract.device.name and reader not in known:
                known.add(reader)
                yield _Hop(sender.name, event_type, routes, reader)


def _shortest_loop(start: str, hops: Mapping[str, Sequence[_Hop]]) -> list[_Hop] | None:
    """The hops from `start` back to it, as few as there can be."""
    waiting: list[list[_Hop]] = [[each] for each in hops[start]]
    seen: set[str] = set()
    for path in waiting:
        reader = path[-1].reader
        if reader == start:
            return path
        if reader not in seen:
            seen.add(reader)
            waiting += [[*path, each] for each in hops[reader]]
    return None
