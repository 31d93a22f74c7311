"""The functions of CESQL as columns of their arguments, which are cast; null stands for an error.

LOWER and UPPER are as Python has them, from Python's own tables. Spark's depend on the Unicode version and
the locale of its Java, and on word boundaries for a final sigma: Java 17 leaves 40 letters alone that Python
3.11 changes. So the mapping is data, and Spark only applies it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.cesql.casts import INTEGER_MAX
from eventplane.cesql.functions import WHITE_SPACE
from glue_jobs.delivery_audit.cesql.operations import to_integer

_SIGMA, _FINAL_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}"


def upper(text: Column) -> Column:
    """`str.upper` of `text`."""
    return _mapped(text, str.upper)


def lower(text: Column) -> Column:
    """`str.lower` of `text`. A sigma is another letter at the end of a word: the one case with a context."""
    return _mapped(sf.regexp_replace(text, _final_sigma(), f"$1{_FINAL_SIGMA}"), str.lower)


def _mapped(text: Column, change: Callable[[str], str]) -> Column:
    """`text` with each character changed by itself."""
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
    """A pattern for a capital sigma after a cased letter and before none; $1 is what stands before it.

    Which letters are cased, and which are looked through, Python does not tell: it shows it.
    """
    cased = [each for each in _characters() if _ends_word(each)]
    ignored = [each for each in _characters() if _ends_word(f"A{each}") and not _ends_word(each)]
    through = f"{_character_class(ignored)}*+"
    letter = _character_class(cased)
    return f"({letter}{through}){_SIGMA}(?!{through}{letter})"


def _ends_word(before: str) -> bool:
    return (before + _SIGMA).lower().endswith(_FINAL_SIGMA)


def _characters() -> Iterator[str]:
    """Every character but the surrogates, which no text has."""
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)


def _character_class(characters: list[str]) -> str:
    """The `characters`, in order, as a class of a Java pattern."""
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
