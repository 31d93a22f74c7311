"""Who sends events of a type, and who receives them by which routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from eventplane.contract.model import Channel, Contract, Participant, Route
from eventplane.contract.paths import paths, place_of, taken
from eventplane.contract.possibilities import of_type, possible
from eventplane.contract.vocabulary import Place


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
