"""The casts, operators and functions of CESQL as Spark columns; null stands for an error.

A cast reads its column once: an expression of Spark is a tree, so a column that is used twice is computed
twice, and its own operands four times. Casts depend on those that give null (spark.sql.ansi.enabled = false).

LOWER and UPPER are as Python has them, from Python's own tables. Spark's depend on the Unicode version and
the locale of its Java, and on word boundaries for a final sigma: Java 17 leaves 40 letters alone that Python
3.11 changes. So the mapping is data, and Spark only applies it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import AttributeValue
from eventplane.cesql import CesqlCastError
from eventplane.cesql import operations as core
from eventplane.cesql.functions import WHITE_SPACE
from eventplane.cesql.operations import INTEGER_MAX, Type, Wildcard, read, regex
from eventplane.limits import MAX_INTEGER_TEXT

SPARK_TYPES = {Type.STRING: "string", Type.INTEGER: "int", Type.BOOLEAN: "boolean"}


def failure(kind: Type) -> Column:
    """Return an error, where a column of `kind` is needed."""
    return sf.lit(None).cast(SPARK_TYPES[kind])


def constant(value: AttributeValue, target: Type) -> Column:
    """Return the constant `value` cast to `target`."""
    try:
        return sf.lit(core.cast(value, target))
    except CesqlCastError:
        return failure(target)


def cast(value: Column, kind: Type, target: Type) -> Column:
    """Return `value`, a column of `kind`, cast to `target`."""
    if kind is target:
        return value
    if kind is Type.STRING:
        return text_to_integer(value) if target is Type.INTEGER else text_to_boolean(value)
    return value.cast(SPARK_TYPES[target])


def text_to_integer(text: Column) -> Column:
    """Cast a sign and digits; Spark alone would accept spaces around them and a decimal point as well."""
    return sf.regexp_extract(text, rf"\A[+-]?[0-9]{{1,{MAX_INTEGER_TEXT}}}\z", 0).cast("int")


def text_to_boolean(text: Column) -> Column:
    """Cast true and false in any case; Spark alone would accept `yes`, `t`, `1` as well."""
    return sf.regexp_extract(text, r"\A(?i:true|false)\z", 0).cast("boolean")


def to_integer(number: Column) -> Column:
    """Return a longer `number` as an Integer; null, an overflow, beyond 32 bits.

    By its digits, as a cast of a number cuts off the upper bits.
    """
    return number.cast("string").cast("int")


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of a `value` that is computed once, however often `body` uses it."""
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
"""All return null on overflow, and for a divisor of 0."""


def like(text: Column, pattern: str) -> Column:
    """Return whether `text` matches; patterns without a search have forms of their own, which are faster."""
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
            # Java and Python agree about all that `regex` uses; a dot is a whole character in both.
            return text.rlike(rf"\A(?s:{regex(pattern)})\z")


def contains(
    kind: Type, value: Column, literals: Sequence[AttributeValue], elements: Sequence[Column]
) -> Column:
    """Return whether `value`, of `kind`, is one of the `literals`, which are cast here, or of `elements`.

    An element that errs makes the whole err, also beside an equal one.
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


_SIGMA, _FINAL_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}"


def upper(text: Column) -> Column:
    """Return `str.upper` of `text`."""
    return _mapped(text, str.upper)


def lower(text: Column) -> Column:
    """Return `str.lower` of `text`. A sigma is another letter at the end of a word: the one such case."""
    return _mapped(sf.regexp_replace(text, _final_sigma(), f"$1{_FINAL_SIGMA}"), str.lower)


def _mapped(text: Column, change: Callable[[str], str]) -> Column:
    """Return `text` with each character changed by itself."""
    changed = _changed(change)
    # Some hundred letters become two or three. What they become has its case, so the order does not matter.
    longer = [
        sf.struct(sf.lit(letter).alias("letter"), sf.lit(letters).alias("letters"))
        for letter, letters in changed.items()
        if len(letters) > 1
    ]
    text = sf.aggregate(
        sf.array(*longer), text, lambda held, each: sf.replace(held, each["letter"], each["letters"])
    )
    single = {letter: other for letter, other in changed.items() if len(other) == 1}
    return sf.translate(text, "".join(single), "".join(single.values()))


@lru_cache(maxsize=2)
def _changed(change: Callable[[str], str]) -> dict[str, str]:
    return {each: change(each) for each in _characters() if change(each) != each}


@lru_cache(maxsize=1)
def _final_sigma() -> str:
    """Return a pattern for a capital sigma after a cased letter and before none; $1 is the text before it.

    Python has no table of the letters that are cased, or ignored: `lower` shows which they are.
    """
    cased = [each for each in _characters() if _ends_word(each)]
    ignored = [each for each in _characters() if _ends_word(f"A{each}") and not _ends_word(each)]
    through = f"{_character_class(ignored)}*+"
    letter = _character_class(cased)
    return f"({letter}{through}){_SIGMA}(?!{through}{letter})"


def _ends_word(before: str) -> bool:
    return (before + _SIGMA).lower().endswith(_FINAL_SIGMA)


def _characters() -> Iterator[str]:
    """Yield every character but the surrogates, which no text has."""
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)


def _character_class(characters: list[str]) -> str:
    """Return the `characters`, in order, as a class of a Java pattern."""
    ranges: list[list[int]] = []
    for code in map(ord, characters):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"


REUSING = frozenset({"CONCAT_WS", "SUBSTRING"})
"""Functions that use an argument more than once."""


def _concat(*texts: Column) -> Column:
    return sf.concat(*texts) if texts else sf.lit("")


def _concat_ws(delimiter: Column, *texts: Column) -> Column:
    # Spark's own skips nulls. With the empty start an error of the delimiter always counts.
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
