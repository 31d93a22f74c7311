"""The functions of CESQL as columns of their arguments, which are cast; null stands for an error."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.cesql.casts import INTEGER_MAX
from eventplane.cesql.functions import WHITE_SPACE
from glue_jobs.delivery_audit.cesql.casing import lower, upper
from glue_jobs.delivery_audit.cesql.casts import to_integer

REUSING = frozenset({"CONCAT_WS", "SUBSTRING"})
"""Functions that use an argument more than once."""


def _concat(*texts: Column) -> Column:
    return sf.concat(*texts) if texts else sf.lit("")


def _concat_ws(delimiter: Column, *texts: Column) -> Column:
    # Spark's own passes over what is null. The empty start makes an error of the delimiter count always.
    parts = [sf.substring(delimiter, 1, 0)]
    for at, text in enumerate(texts):
        parts += [delimiter, text] if at else [text]
    return sf.concat(*parts)


def _left(text: Column, length: Column) -> Column:
    return text.substr(sf.lit(1), _not_negative(length))


def _right(text: Column, length: Column) -> Column:
    return sf.right(text, _not_negative(length))


def _substring(text: Column, position: Column, length: Column | None = None) -> Column:
    size = sf.length(text)
    count = sf.lit(INTEGER_MAX) if length is None else length
    found = sf.when(position == 0, sf.lit("")).otherwise(text.substr(position, count))
    return sf.when(position.between(-size, size) & (count >= 0), found)


def _absolute(number: Column) -> Column:
    return to_integer(sf.abs(number.cast("long")))


def _not_negative(number: Column) -> Column:
    return sf.regexp_extract(number.cast("string"), r"\A[0-9]+\z", 0).cast("int")


def _same(value: Column) -> Column:
    return value


FUNCTIONS: dict[str, Callable[..., Column]] = {
    "LENGTH": sf.length,
    "CONCAT": _concat,
    "CONCAT_WS": _concat_ws,
    "LOWER": lower,
    "UPPER": upper,
    "TRIM": lambda text: sf.btrim(text, sf.lit(WHITE_SPACE)),
    "LEFT": _left,
    "RIGHT": _right,
    "SUBSTRING": _substring,
    "ABS": _absolute,
    "INT": _same,
    "BOOL": _same,
    "STRING": _same,
}
"""By name: the built-in functions of the core."""
