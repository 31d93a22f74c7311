"""LOWER and UPPER as Python has them, from Python's own tables.

Spark's depend on the Unicode version and the locale of its Java, and on word boundaries for a final sigma:
Java 17 leaves 40 letters alone that Python 3.11 changes. So the mapping is data, and Spark only applies it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as sf

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
