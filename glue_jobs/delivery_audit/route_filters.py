"""The contract's routes as Spark columns: the trees that the routers walk, compiled instead of walked."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.contract import Contract, Place, Route
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix
from glue_jobs.delivery_audit import cesql
from glue_jobs.delivery_audit.attributes import NOT_ATTRIBUTES, Attributes
from glue_jobs.delivery_audit.interest import UNWANTED, always_wanted

NO_ROUTE = "(unrouted)"
"""What stands for a route where none matches. No route can be called so, or has a space in its name."""

EVERY_ROUTE = "(every route)"
"""Stands for a route where a ledger row has none and yet is not `unrouted`: every route ends so."""


def to_column(filter: Filter, attributes: Attributes) -> Column:
    """Whether an event matches `filter`: true or false, never null.

    Raises `UnsupportedExpressionError`.
    """
    if isinstance(filter, Not):
        return ~to_column(filter.filter, attributes)
    if isinstance(filter, All):
        return reduce(and_, (to_column(each, attributes) for each in filter.filters), sf.lit(True))
    if isinstance(filter, Any):
        return reduce(or_, (to_column(each, attributes) for each in filter.filters), sf.lit(False))
    if isinstance(filter, Sql):
        return cesql.passes(filter.expression, attributes)
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


def cloud_routes(contract: Contract, attributes: Attributes) -> Column:
    """The names of the cloud's routes that an event takes, parted by spaces; `NO_ROUTE` when it takes none.

    `UNWANTED` stands before those that do not forward it. A text: an array would be built for each event
    anew.
    """
    routes = contract.routes_at(Place.CLOUD)
    always = always_wanted(contract, attributes)

    def name(route: Route) -> Column:
        if route.interest is None:
            return sf.lit(route.name)
        wanted = always | to_column(route.interest, attributes)
        return sf.when(wanted, sf.lit(route.name)).otherwise(sf.lit(UNWANTED + route.name))

    taken = [sf.when(to_column(route.filter, attributes), name(route)) for route in routes]
    names = sf.concat_ws(" ", *taken)
    return sf.when(names == "", sf.lit(NO_ROUTE)).otherwise(names)
