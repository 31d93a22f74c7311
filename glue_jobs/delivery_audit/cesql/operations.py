"""Casts between the types of CESQL, and its operators, as columns; null stands for an error.

A cast reads its column once: an expression of Spark is a tree, so a column that is used twice is computed
twice, and its own operands four times. Casts stand on those that give null (spark.sql.ansi.enabled = false).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import AttributeValue
from eventplane.cesql import CesqlCastError
from eventplane.cesql import casts as core
from eventplane.cesql.casts import Type
from eventplane.cesql.like import Wildcard, read, regex
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


Binary = Callable[[Column, Column], Column]


def _and(left: Column, right: Column) -> Column:
    # Spark says that null AND false is false. An array's member at null is null, so an error stays one; and
    # the right side, which does not count where the left decides, may err there. With `array[...]`, Spark's
    # analyzer would go over the plan once more for each level.
    return sf.get(sf.array(sf.lit(False), right), left.cast("int"))


def _or(left: Column, right: Column) -> Column:
    return sf.get(sf.array(right, sf.lit(True)), left.cast("int"))


LOGIC: dict[str, Binary] = {"AND": _and, "OR": _or, "XOR": operator.ne}

COMPARE: dict[str, Binary] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

ARITHMETIC: dict[str, Binary] = {
    "*": sf.try_multiply,
    "/": lambda left, right: to_integer(sf.call_function("div", left, right)),
    "%": operator.mod,
    "+": sf.try_add,
    "-": sf.try_subtract,
}
"""All give null on overflow, and for a divisor of 0."""


def like(text: Column, pattern: str) -> Column:
    """Whether `text` matches; patterns that need no search are told apart, as Spark is quicker with them."""
    match read(pattern):
        case ():
            return text == sf.lit("")
        case (str(whole),):
            return text == sf.lit(whole)
        case (str(start), Wildcard.MANY):
            return text.startswith(sf.lit(start))
        case (Wildcard.MANY, str(end)):
            return text.endswith(sf.lit(end))
        case _:
            # Java and Python agree about all that `regex` uses; a dot is a character in both, not half.
            return text.rlike(rf"\A(?s:{regex(pattern)})\z")


def contains(
    kind: Type, value: Column, literals: Sequence[AttributeValue], elements: Sequence[Column]
) -> Column:
    """Whether `value`, of `kind`, is one of the `literals`, which are cast here, or of `elements`.

    An element that erred makes an error of the whole, also beside one that is equal.
    """
    try:
        constants = [core.cast(each, kind) for each in literals]
    except CesqlCastError:
        return failure(Type.BOOLEAN)
    differs = [value != each for each in elements]
    if constants:
        differs.append(~value.isin(constants))
    # Sorted, null comes before false and false before true.
    return ~(sf.get(sf.sort_array(sf.array(*differs)), sf.lit(0)) if elements else differs[0])
