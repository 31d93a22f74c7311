"""The attributes of archived events as columns, with the type that each has in the event's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, DataType, IntegerType, StringType, StructField, StructType

from eventplane.attributes import STRINGS
from eventplane.cesql import tree
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix

NOT_ATTRIBUTES = frozenset({"data", "data_base64"})
"""Members of an event's JSON that are none of its attributes, though a filter may name them."""

# With an option set, Spark's optimizer leaves the schema alone. Otherwise it parses the event once for each
# attribute that is used (OptimizeCsvJsonExprs).
_PARSE_ONCE = {"mode": "PERMISSIVE"}


@dataclass(frozen=True, slots=True)
class Attributes:
    """Three structs with a member for each attribute, null where the event has none.

    `texts` has canonical strings: Spark's reader renders a Boolean as `true`, an Integer in decimals, as the
    core's `attribute_text` does. `integers` and `booleans` have a value only where the JSON has a number, or
    true or false, without quotes: 5 and "5" have one text, and are two things to CESQL.
    """

    texts: Column
    integers: Column
    booleans: Column


def with_attributes(
    rows: DataFrame, filters: Iterable[Filter], also: Iterable[str] = ()
) -> tuple[DataFrame, Attributes]:
    """`rows`, and what their column `event` has of the attributes that `filters` look at and of `also`."""
    leaves = [leaf for each in filters for leaf in _leaves(each)]
    texts = {*also, *(name for leaf in leaves for name in _names(leaf))} - NOT_ATTRIBUTES
    typed = {name for leaf in leaves for name in _compared_by_type(leaf)} - NOT_ATTRIBUTES - STRINGS
    parsed = {"texts": _parsed(texts, StringType())}
    if typed:
        # Only the reader knows how a value was written, and one reading gives one type.
        parsed |= {"integers": _parsed(typed, IntegerType()), "booleans": _parsed(typed, BooleanType())}
    # Columns, and not members of one struct: Spark would parse the event anew for each use of a member.
    return rows.withColumns(parsed), Attributes(sf.col("texts"), sf.col("integers"), sf.col("booleans"))


def _parsed(names: Iterable[str], kind: DataType) -> Column:
    # An event always has a type; without any name at all there would be nothing to parse into.
    schema = StructType([StructField(name, kind) for name in sorted({"type", *names})])
    return sf.from_json("event", schema, _PARSE_ONCE)


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
