"""What is allowed in a contract and was hardly meant: the warnings of `make contract`.

A warning never stops a deploy. What the checks cannot know, they leave alone: which events a participant
sends is not declared, so a service that answers an event with one of the same type is not seen as a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.contract.errors import Problem
from eventplane.contract.model import Contract, Ordering, Place, Route
from eventplane.contract.possibilities import can_match, possible
from eventplane.filters import All, Any, Attributes, Exact, Filter, Not, Sql, to_document


def check(contract: Contract) -> tuple[Problem, ...]:
    """Every warning about a compiled `contract`: place, what is doubtful, what to do."""
    return (
        *_unreachable_channels(contract),
        *_lost_order(contract),
        *_untaken_types(contract),
        *_doubtful_filters(contract),
        *_repeated_routes(contract),
        *_loops(contract),
    )


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


def _untaken_types(contract: Contract) -> Iterator[Problem]:
    for name in contract.event_types:
        if not any(can_match(route.filter, _known(name)) for route in contract.routes):
            yield Problem(
                f"event_types.{name}",
                "no route takes it",
                "add a route, or remove the type if nobody sends it",
            )


def _doubtful_filters(contract: Contract) -> Iterator[Problem]:
    for route in contract.routes:
        path = f"routes.{route.name}.filter"
        yield from _lint(route.filter, path)
        yield from _never_matching(route.filter, path, contract)
        if possible(route.filter, {}) == {True} and not isinstance(route.filter, Sql):
            yield Problem(path, "every event passes this filter", "narrow it if not every event is meant")


def _lint(filter: Filter, path: str) -> Iterator[Problem]:
    """What the expressions' own lint says, wherever they stand in the filter."""
    if isinstance(filter, Sql):
        # Only a contract with an expression pays for loading the language.
        from eventplane.cesql import lint

        for each in lint(filter.expression):
            yield Problem(f"{path}.sql", each.message, each.remedy, each.excerpt)
    for part_path, part in _parts(filter, path):
        yield from _lint(part, part_path)


def _never_matching(filter: Filter, path: str, contract: Contract) -> Iterator[Problem]:
    """The filter, or the alternatives in it, that no event of the contract can match."""
    if not can_match(filter, {}):
        # The lint has said so where it is one expression alone.
        if not isinstance(filter, Sql):
            yield Problem(path, "no event passes this filter", "correct it, or remove it")
        return
    if contract.event_types and not any(can_match(filter, _known(each)) for each in contract.event_types):
        (dialect,) = to_document(filter)
        yield Problem(
            f"{path}.{dialect}",
            "it matches no event type of the contract",
            "correct the type, or declare the event type",
            _excerpt(filter),
        )
    elif isinstance(filter, Any):
        for part_path, part in _parts(filter, path):
            yield from _never_matching(part, part_path, contract)


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


def _loops(contract: Contract) -> Iterator[Problem]:
    """The device is the one participant that passes events on by itself: up, down, and up again."""
    device = contract.device
    up = [each for each in contract.routes if each.destination == device.outbox.address]
    down = [each for each in contract.routes if each.destination == device.inbox.address]
    kinds = [_known(each) for each in contract.event_types] or [{}]
    for back in down:
        loops = [each.name for each in up if _can_share(each.filter, back.filter, kinds)]
        if loops:
            yield Problem(
                f"routes.{back.name}",
                f"it can send down again what {' or '.join(loops)} sends up: a loop",
                "let the filters exclude each other, by type or by an attribute",
            )


def _can_share(one: Filter, other: Filter, kinds: list[Attributes]) -> bool:
    both = All((one, other))
    needed = _needed(both)
    return any(can_match(both, {**needed, **known}) for known in kinds)


def _needed(filter: Filter) -> Attributes:
    """Attributes without which nothing matches: two filters that ask for different ones share no event."""
    if isinstance(filter, Exact):
        return {filter.attribute: filter.value}
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
