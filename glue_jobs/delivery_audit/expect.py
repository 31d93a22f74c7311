"""The contract's routes as Spark columns: the trees that the routers walk, compiled instead of walked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import SEVERITY_NUMBERS, STRINGS, priority_of
from eventplane.cesql import tree
from eventplane.contract import Contract, Place, Priority, Route
from eventplane.device_reports import REPORT_PREFIX
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix
from eventplane.interest import ALWAYS_WANTED
from eventplane.sender import PLANE, PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE
from glue_jobs.delivery_audit.cesql import NOT_ATTRIBUTES, AttributeColumns, passes
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.event_group import NO_ROUTE, UNWANTED
from glue_jobs.delivery_audit.rows import severity

_URGENT_SEVERITY: Final = min(
    each for each in SEVERITY_NUMBERS if Priority(priority_of(each)) is Priority.URGENT
)


def attributes_of(filters: Iterable[Filter]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the attributes that `filters` look at, and of those that they compare by type."""
    leaves = [leaf for each in filters for leaf in _leaves(each)]
    texts = {name for leaf in leaves for name in _names(leaf)} - NOT_ATTRIBUTES
    typed = {name for leaf in leaves for name in _compared_by_type(leaf)} - NOT_ATTRIBUTES - STRINGS
    return frozenset(texts), frozenset(typed)


def _leaves(filter: Filter) -> Iterator[Exact | Prefix | Suffix | Sql]:
    if isinstance(filter, Not):
        yield from _leaves(filter.filter)
    elif isinstance(filter, All | Any):
        for each in filter.filters:
            yield from _leaves(each)
    else:
        yield filter


def _names(leaf: Exact | Prefix | Suffix | Sql) -> Iterable[str]:
    return tree.names(leaf.expression.tree) if isinstance(leaf, Sql) else (leaf.attribute,)


def _compared_by_type(leaf: Exact | Prefix | Suffix | Sql) -> Iterable[str]:
    if not isinstance(leaf, Sql):
        return ()
    return (node.name for node in tree.walk(leaf.expression.tree) if isinstance(node, tree.Attribute))


def filters_of(history: ContractHistory) -> Iterator[Filter]:
    """Return all filters by which the contracts of `history` route in the cloud, and into homes."""
    for contract in history.contracts:
        for route in contract.routes_at(Place.CLOUD):
            yield route.filter
            if route.interest is not None:
                yield route.interest
    yield from (route.filter for _, route in history.home_routes)


def expected_routes(history: ContractHistory, attributes: AttributeColumns) -> Column:
    """Return the routes that an event of the tap takes, a text for each contract of `history`."""
    # As the router sees them: with the device, which is in the frame and not in the event.
    is_plane = sf.col("client_id") == PLANE_CLIENT
    sender = {
        SENDER_DEVICE: sf.when(~is_plane, sf.col("client_id")),
        SENDER_SERVICE: sf.when(is_plane, sf.lit(PLANE)).otherwise(attributes.texts[SENDER_SERVICE]),
    }
    routed = replace(attributes, texts={**attributes.texts, **sender})
    return sf.array(*(cloud_routes(each, routed) for each in history.contracts))


def due_at_home(history: ContractHistory, attributes: AttributeColumns) -> Column:
    """Return where a device must store an urgent event in its home: lines of `version inbox`, or nothing."""
    routed = replace(attributes, texts={**attributes.texts, SENDER_DEVICE: sf.lit(None)})
    due = [
        sf.when(
            _is_always_wanted(contract, routed) & to_column(route.filter, routed),
            sf.lit(f"{contract.version} {route.destination}"),
        )
        for contract, route in history.home_routes
    ]
    return sf.concat_ws("\n", *due) if due else sf.lit("")


def cloud_routes(contract: Contract, attributes: AttributeColumns) -> Column:
    """Return the names of the cloud's routes that an event takes, parted by spaces; else `NO_ROUTE`.

    `UNWANTED` stands before those that do not forward it. A text: an array would be built for each event
    anew.
    """
    routes = contract.routes_at(Place.CLOUD)
    always = _is_always_wanted(contract, attributes)

    def name(route: Route) -> Column:
        if route.interest is None:
            return sf.lit(route.name)
        wanted = always | to_column(route.interest, attributes)
        return sf.when(wanted, sf.lit(route.name)).otherwise(sf.lit(UNWANTED + route.name))

    taken = [sf.when(to_column(route.filter, attributes), name(route)) for route in routes]
    names = sf.concat_ws(" ", *taken)
    return sf.when(names == "", sf.lit(NO_ROUTE)).otherwise(names)


def to_column(filter: Filter, attributes: AttributeColumns) -> Column:
    """Return whether an event matches `filter`: true or false, never null.

    Raises `UnsupportedExpressionError`.
    """
    if isinstance(filter, Not):
        return ~to_column(filter.filter, attributes)
    if isinstance(filter, All):
        return reduce(and_, (to_column(each, attributes) for each in filter.filters), sf.lit(True))
    if isinstance(filter, Any):
        return reduce(or_, (to_column(each, attributes) for each in filter.filters), sf.lit(False))
    if isinstance(filter, Sql):
        return passes(filter.expression, attributes)
    if filter.attribute in NOT_ATTRIBUTES:
        return sf.lit(False)
    # In SQL a comparison with nothing is unknown, and so is its negation; a router says false, and true.
    return sf.coalesce(_compare(filter, attributes.texts[filter.attribute]), sf.lit(False))


def _compare(filter: Exact | Prefix | Suffix, held: Column) -> Column:
    if isinstance(filter, Exact):
        return held == sf.lit(filter.value)
    if isinstance(filter, Prefix):
        return held.startswith(sf.lit(filter.value))
    return held.endswith(sf.lit(filter.value))


def _is_always_wanted(contract: Contract, attributes: AttributeColumns) -> Column:
    """Return whether an event is forwarded whatever its reader announced (`eventplane.interest`)."""
    by_type: dict[bool, list[str]] = {True: [*ALWAYS_WANTED], False: []}
    for each in contract.event_types.values():
        if each.priority:
            by_type[each.priority is Priority.URGENT].append(each.name)
    type = attributes.texts["type"]
    by_channel = sf.lit(contract.device.outbox.priority is Priority.URGENT)
    return (
        sf.when(type.isin(by_type[True]) | type.startswith(REPORT_PREFIX), sf.lit(True))
        .when(type.isin(by_type[False]), sf.lit(False))
        .otherwise(sf.coalesce(severity(attributes.texts) >= _URGENT_SEVERITY, by_channel))
    )
