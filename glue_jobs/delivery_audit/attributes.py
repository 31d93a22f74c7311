"""Which attributes of archived events the filters look at, and how they come as columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import STRINGS
from eventplane.cesql import tree
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix

NOT_ATTRIBUTES = frozenset({"data", "data_base64"})
"""Members of an event's JSON that are none of its attributes, though a filter may name them."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of an event as columns by name, null where the event has none.

    `texts` has canonical strings: Spark's reader renders a Boolean as `true`, an Integer in decimals, as the
    core's `attribute_text` does. `integers` and `booleans` have a value only where the JSON has a number, or
    true or false, without quotes: 5 and "5" have one text, and are two things to CESQL.
    """

    texts: Mapping[str, Column]
    integers: Mapping[str, Column]
    booleans: Mapping[str, Column]

    @classmethod
    def read(cls, texts: Collection[str], typed: Collection[str]) -> Attributes:
        """Return the attributes of the rows that `Archive.read` gives when it is asked for these names."""
        return cls(
            {name: sf.col("texts")[name] for name in texts},
            {name: sf.col("integers")[name] for name in typed},
            {name: sf.col("booleans")[name] for name in typed},
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
