"""An event's attributes as operands of CESQL; one that is absent is null, an error.

Some are Strings by their definition. An extension may be a String in one event and an Integer in the next.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import REQUIRED, STRINGS
from eventplane.cesql.casts import Type
from glue_jobs.delivery_audit.attributes import NOT_ATTRIBUTES, Attributes
from glue_jobs.delivery_audit.cesql import casts


def kind_of(name: str) -> Type:
    """The type of attribute `name`; ANY for an extension."""
    return Type.STRING if name in STRINGS else Type.ANY


class Context:
    """What an expression asks of `attributes`."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes

    def exists(self, name: str) -> Column:
        """Whether the event has the attribute."""
        if name in REQUIRED or name in NOT_ATTRIBUTES:
            return sf.lit(name in REQUIRED)
        return self._attributes.texts[name].isNotNull()

    def cast(self, name: str, target: Type) -> Column:
        """The attribute's value, cast to `target`."""
        if name in NOT_ATTRIBUTES:
            return casts.failure(target)
        by_text = casts.cast(self._attributes.texts[name], Type.STRING, target)
        if name in STRINGS or target is Type.STRING:
            return by_text
        # An Integer's text reads as this Integer and a Boolean's as this Boolean; the other way it does not.
        other = self._attributes.booleans if target is Type.INTEGER else self._attributes.integers
        return sf.coalesce(other[name].cast(casts.SPARK_TYPES[target]), by_text)

    def by_type(self, name: str, body: Callable[[Type, Column], Column | None]) -> Column:
        """`body` of an extension's type and value; null, an error, for a type that gives None."""
        result = sf.when(sf.lit(False), casts.failure(Type.BOOLEAN))
        if name in NOT_ATTRIBUTES:
            return result
        held = self._attributes
        # In this order, as the text is there in all three cases.
        for kind, column in (
            (Type.INTEGER, held.integers[name]),
            (Type.BOOLEAN, held.booleans[name]),
            (Type.STRING, held.texts[name]),
        ):
            given = body(kind, column)
            result = result.when(column.isNotNull(), casts.failure(Type.BOOLEAN) if given is None else given)
        return result
