"""Casts between the types of CESQL as columns; what cannot be cast is null.

Each reads its column once: an expression of Spark is a tree, so a column that is used twice is computed
twice, and its own operands four times. They stand on casts that give null (spark.sql.ansi.enabled = false).
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import AttributeValue
from eventplane.cesql import CesqlCastError
from eventplane.cesql import casts as core
from eventplane.cesql.casts import Type
from eventplane.limits import MAX_INTEGER_TEXT

SPARK_TYPES = {Type.STRING: "string", Type.INTEGER: "int", Type.BOOLEAN: "boolean"}


def failure(kind: Type) -> Column:
    """What erred, where a column of `kind` is needed."""
    return sf.lit(None).cast(SPARK_TYPES[kind])


def constant(value: AttributeValue, target: Type) -> Column:
    """`value` cast to `target`."""
    try:
        return sf.lit(core.cast(value, target))
    except CesqlCastError:
        return failure(target)


def cast(value: Column, kind: Type, target: Type) -> Column:
    """`value`, a column of `kind`, cast to `target`."""
    if kind is target:
        return value
    if kind is Type.STRING:
        return text_to_integer(value) if target is Type.INTEGER else text_to_boolean(value)
    return value.cast(SPARK_TYPES[target])


def text_to_integer(text: Column) -> Column:
    """A sign and digits; Spark alone would take spaces around them and a decimal point as well."""
    return sf.regexp_extract(text, rf"\A[+-]?[0-9]{{1,{MAX_INTEGER_TEXT}}}\z", 0).cast("int")


def text_to_boolean(text: Column) -> Column:
    """True and false in any case; Spark alone would take `yes`, `t`, `1` as well."""
    return sf.regexp_extract(text, r"\A(?i:true|false)\z", 0).cast("boolean")


def to_integer(number: Column) -> Column:
    """A whole `number` of more than 32 bits; null, an overflow, where 32 do not hold it.

    By way of its digits, as a cast of a number cuts off the upper bits.
    """
    return number.cast("string").cast("int")


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a `value` that is computed once, however often `body` uses it."""
    return sf.get(sf.transform(sf.array(value), body), sf.lit(0))
