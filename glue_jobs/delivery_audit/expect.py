"""The routes that an event of the tap takes, by the routers' own code, for both engines.

What a route depends on are the values of the attributes that filters look at. Spark brings together those
that are equal, and the routers' code decides once for each combination.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any as AnyValue
from typing import Final

from eventplane.attributes import KNOWN, SEVERITY_NUMBERS, STRINGS, AttributeValue
from eventplane.cesql import tree
from eventplane.contract import Contract, Place
from eventplane.envelope import Envelope
from eventplane.filters import Any, Combination, Filter, Term, attribute_names
from eventplane.interest import is_wanted
from eventplane.names import PLANE, PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE
from eventplane.router import Router
from eventplane.values import whole_number
from glue_jobs.common.lines import text_of
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import NO_ROUTE, UNWANTED

NOT_ATTRIBUTES: Final = frozenset({"data", "data_base64"})
"""Members of an event's JSON that are none of its attributes, though a filter may name them."""

Routes = Callable[[Mapping[str, AttributeValue]], tuple[list[str], str]]
"""Returns the routes in the cloud, a text for each contract, and where the event is due at home."""

_INT32: Final = range(-(2**31), 2**31)

_NOTHING: Final = Any(())
"""A reader that handles nothing gets what is forwarded all the same."""


def looked_at(history: ContractHistory) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the attributes on which routes depend, and of those that are compared by type."""
    filters = [*_filters_of(history)]
    # By these an event is urgent, and forwarded whatever its reader announced.
    names = {"type", "severitynumber"}.union(*map(attribute_names, filters)) - NOT_ATTRIBUTES
    typed = {name for each in filters for name in _compared_by_type(each)} - NOT_ATTRIBUTES - STRINGS
    return frozenset(names), frozenset(typed)


def _filters_of(history: ContractHistory) -> Iterator[Filter]:
    for contract in history.contracts:
        for route in contract.routes_at(Place.CLOUD):
            yield route.filter
            if route.interest is not None:
                yield route.interest
    yield from (route.filter for _, route in history.home_routes)


def _compared_by_type(filter: Filter) -> Iterator[str]:
    if isinstance(filter, Combination):
        for each in filter.filters:
            yield from _compared_by_type(each)
    elif not isinstance(filter, Term):
        yield from (node.name for node in tree.walk(filter.tree) if isinstance(node, tree.Attribute))


def attributes_of(members: Mapping[str, AnyValue], client_id: str | None) -> Mapping[str, AttributeValue]:
    """Return the attributes of an event's `members` as the router sees them: with the device of its frame."""
    found = {
        name: each if each.__class__ is str and each.isascii() else _attribute(name, each)
        for name, each in members.items()
        if each is not None and name not in NOT_ATTRIBUTES
    }
    found.pop(SENDER_DEVICE, None)
    if client_id == PLANE_CLIENT:
        found[SENDER_SERVICE] = PLANE
    elif client_id is not None:
        found[SENDER_DEVICE] = client_id
    return found


def _attribute(name: str, value: AnyValue) -> AttributeValue:
    kind = value.__class__
    is_typed = (kind is bool and name not in KNOWN) or (kind is int and value in _INT32)
    return value if is_typed and name not in STRINGS else text_of(value) or ""


def expected_routes(history: ContractHistory) -> Routes:
    """Return what gives the routes that an event takes, and where a device must store it in its home.

    Routes are names, parted by spaces, with `UNWANTED` before those that do not forward the event; else
    `NO_ROUTE`. Urgent events are due at home: lines of `version inbox`, or nothing.
    """
    routers, at_home = [*map(_router, history.contracts)], [*history.home_routes]

    def routes(attributes: Mapping[str, AttributeValue]) -> tuple[list[str], str]:
        here = {name: each for name, each in attributes.items() if name != SENDER_DEVICE}
        due = (
            f"{contract.version} {route.destination}"
            for contract, route in at_home
            if route.filter.matches(here) and _is_wanted(_NOTHING, contract, here)
        )
        return [_cloud_routes(each, attributes) for each in routers], "\n".join(due)

    return routes


def routed(history: ContractHistory, values: Iterable[tuple[str]]) -> Iterator[tuple[str, list[str], str]]:
    """Yield rows of `rows.routed_by` with the routes, and where the event is due at home."""
    routes = expected_routes(history)
    for (text,) in values:
        client_id, *kinds = json.loads(text).values()
        members = {name: each for kind in kinds for name, each in kind.items()}
        yield text, *routes(attributes_of(members, client_id or None))


@lru_cache(maxsize=64)
def _router(contract: Contract) -> Router:
    return Router(contract, Place.CLOUD)


def _cloud_routes(router: Router, attributes: Mapping[str, AttributeValue]) -> str:
    names = []
    for route in router.route(Envelope(attributes, "")):
        is_in = route.interest is None or _is_wanted(route.interest, router.contract, attributes)
        names.append(route.name if is_in else UNWANTED + route.name)
    return " ".join(names) or NO_ROUTE


def _is_wanted(interest: Filter, contract: Contract, attributes: Mapping[str, AttributeValue]) -> bool:
    # Of an invalid severity the audit knows as much as of none.
    number = severity(text_of(attributes.get("severitynumber")) or "")
    known = {"type": "", **attributes, "severitynumber": number}
    event = Envelope({name: each for name, each in known.items() if each is not None}, "")
    return is_wanted(interest, event, contract.priority(event, contract.device.outbox))


def severity(text: str) -> int | None:
    """Return the `severitynumber` as the core accepts it, else None."""
    try:
        return whole_number(text, SEVERITY_NUMBERS[-1], SEVERITY_NUMBERS[0])
    except ValueError:
        return None
