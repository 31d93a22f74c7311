"""Events that come round again: passed on by the device, or answered by one service after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Participant, Route
from eventplane.contract.paths import paths, place_of
from eventplane.contract.possibilities import Takes, can_match, needed, of_type
from eventplane.filters import All


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
