"""What is allowed in a contract and was hardly meant: the warnings of `make contract`.

A warning never stops a deploy. What the checks cannot know, they leave alone: which events a participant
sends is not declared, so a service that answers an event with one of the same type is not seen as a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Ordering, Place, Route
from eventplane.contract.possibilities import can_match, possible
from eventplane.filters import All, Any, Attributes, Exact, Filter, Not, Sql, to_document


def check(contract: Contract) -> tuple[Problem, ...]:
    """Every warning about a compiled `contract`: place, what is doubtful, what to do."""
    # Asked once: with a thousand routes and hundreds of types it is what takes time here.
    takes = {route.name: _types_of(route.filter, contract.event_types) for route in contract.routes}
    return (
        *_unreachable_channels(contract),
        *_lost_order(contract),
        *_untaken_types(contract, takes),
        *_doubtful_filters(contract, takes),
        *_repeated_routes(contract),
        *_loops(contract, takes),
    )


_Takes = Mapping[str, frozenset[str]]
"""The declared event types that each route can take, by its name."""


def _types_of(filter: Filter, types: Iterable[str]) -> frozenset[str]:
    return frozenset(each for each in types if can_match(filter, _known(each)))


def _unreachable_channels(contract: Contract) -> Iterator[Problem]:
    written = {route.destination for route in contract.routes}
    for each in contract.participants.values():
        if each.inbox.address not in written:
            yield Problem(
                f"participants.{each.name}.inbox",
                "no route leads here",
                "add a route if it should receive events; otherwise leave it so",
            )
    uplink = contract.device.outbox.address
    if uplink not in written:
        yield Problem(
            f"participants.{contract.device.name}.outbox",
            "no route leads to the uplink, so nothing that happens in a home reaches the cloud",
            f"add a route to {uplink}",
        )


def _lost_order(contract: Contract) -> Iterator[Problem]:
    for address in sorted({route.destination for route in contract.routes_at(Place.CLOUD)}):
        if contract.channel(address).ordering is Ordering.SOURCE:
            yield Problem(
                f"participants.{address}.ordering",
                "a device's events pass the standard queue behind the IoT rule before they come here",
                "let the reader order them by `deviceepoch` and `devicesequence`",
            )


def _untaken_types(contract: Contract, takes: _Takes) -> Iterator[Problem]:
    taken = frozenset[str]().union(*takes.values())
    for name in contract.event_types:
        if name not in taken:
            yield Problem(
                f"event_types.{name}",
                "no route takes it",
                "add a route, or remove the type if nobody sends it",
            )


def _doubtful_filters(contract: Contract, takes: _Takes) -> Iterator[Problem]:
    for route in contract.routes:
        path = f"routes.{route.name}.filter"
        yield from _lint(route.filter, path)
        if contract.event_types:
            yield from _never_matching(route.filter, path, takes[route.name])
        answers = possible(route.filter, {})
        # Of one expression alone the lint has said so.
        if len(answers) == 1 and not isinstance(route.filter, Sql):
            word, remedy = (
                ("every", "narrow it if that is not meant") if True in answers else ("no", "correct it")
            )
            yield Problem(path, f"{word} event passes this filter", remedy)


def _lint(filter: Filter, path: str) -> Iterator[Problem]:
    """What the expressions' own lint says, wherever they stand in the filter."""
    if isinstance(filter, Sql):
        # Only a contract with an expression pays for loading the language.
        from eventplane.cesql import lint

        for each in lint(filter.expression):
            yield Problem(f"{path}.sql", each.message, each.remedy, each.excerpt)
    for part_path, part in _parts(filter, path):
        yield from _lint(part, part_path)


def _never_matching(filter: Filter, path: str, types: frozenset[str]) -> Iterator[Problem]:
    """The filter, or the alternatives in it, that fit none of the contract's `types`."""
    if not types and can_match(filter, {}):
        (dialect,) = to_document(filter)
        yield Problem(
            f"{path}.{dialect}",
            "it matches no event type of the contract",
            "correct the type, or declare the event type",
            _excerpt(filter),
        )
    elif types and isinstance(filter, Any):
        for part_path, part in _parts(filter, path):
            # What a part takes, the whole takes as well.
            yield from _never_matching(part, part_path, _types_of(part, types))


def _excerpt(filter: Filter) -> str:
    return filter.expression.text if isinstance(filter, Sql) else ""


def _repeated_routes(contract: Contract) -> Iterator[Problem]:
    first: dict[tuple[Filter, str], Route] = {}
    for route in contract.routes:
        earlier = first.setdefault((route.filter, route.destination), route)
        if earlier is not route:
            yield Problem(
                f"routes.{route.name}",
                f"it says the same as {earlier.name}, so its reader gets each event twice",
                "remove one of the two",
            )


def _loops(contract: Contract, takes: _Takes) -> Iterator[Problem]:
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


def _can_share(one: Route, other: Route, takes: _Takes, declared: bool) -> bool:
    both = All((one.filter, other.filter))
    needed = _needed(both)
    if not declared:
        return can_match(both, needed)
    shared = takes[one.name] & takes[other.name]
    return any(can_match(both, {**needed, **_known(each)}) for each in shared)


def _needed(filter: Filter) -> Attributes:
    """Attributes without which nothing matches: two filters that ask for different ones share no event."""
    if isinstance(filter, Exact):
        # An attribute that reads 1 or true may be no String, and then an expression sees another value.
        other = filter.value in ("true", "false") or filter.value.lstrip("-").isdigit()
        return {} if other else {filter.attribute: filter.value}
    if isinstance(filter, All):
        return {name: value for each in filter.filters for name, value in _needed(each).items()}
    return {}


def _parts(filter: Filter, path: str) -> Iterator[tuple[str, Filter]]:
    if isinstance(filter, Not):
        yield f"{path}.not", filter.filter
    elif isinstance(filter, All | Any):
        dialect = type(filter).__name__.lower()
        for at, part in enumerate(filter.filters):
            yield f"{path}.{dialect}[{at}]", part


def _known(event_type: str) -> Attributes:
    return {"type": event_type, "specversion": "1.0"}
