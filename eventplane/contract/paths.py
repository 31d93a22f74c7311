"""The ways that events of a type can take from where they enter to where somebody reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eventplane.contract.model import Contract, Participant, Route
from eventplane.contract.possibilities import Takes, can_match, needed, of_type
from eventplane.contract.vocabulary import ParticipantKind, Place
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
