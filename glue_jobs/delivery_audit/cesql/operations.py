"""What the operators of CESQL do with columns of the right type; null stands for an error."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import AttributeValue
from eventplane.cesql import CesqlCastError, casts
from eventplane.cesql.casts import Type
from eventplane.cesql.like import Wildcard, read, regex
from glue_jobs.delivery_audit.cesql.casts import failure, to_integer

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
        constants = [casts.cast(each, kind) for each in literals]
    except CesqlCastError:
        return failure(Type.BOOLEAN)
    differs = [value != each for each in elements]
    if constants:
        differs.append(~value.isin(constants))
    # Sorted, null comes before false and false before true.
    return ~(sf.get(sf.sort_array(sf.array(*differs)), sf.lit(0)) if elements else differs[0])
