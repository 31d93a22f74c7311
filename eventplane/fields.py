"""Declare settings as fields of dataclasses, each once.

A field's annotation is its type, one of these functions says what it accepts, and the text below it is its
meaning; a default of `MISSING` makes it required. Readers, checks, JSON Schema and the tables of the docs
follow the declaration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any, NamedTuple


class Range(NamedTuple):
    """Numbers of `unit` from `low` to `high`, with `is_whole` whole ones only. Its text says so."""

    low: float
    high: float
    unit: str
    is_whole: bool = False

    def __str__(self) -> str:
        return f"{self.unit} from {self.low} to {self.high}"

    def read(self, raw: object) -> float:
        """Return the number that `raw` is or, as a text, writes.

        Python takes True for 1 and cuts 1.5 to 1; a setting does neither. Raises ValueError.
        """
        value: float = math.nan
        if isinstance(raw, str):
            value = int(raw) if self.is_whole else float(raw)
        elif isinstance(raw, int | float) and not isinstance(raw, bool | float if self.is_whole else bool):
            value = raw
        # Written so that NaN is out of every range.
        if not self.low <= value <= self.high:
            raise ValueError(f"not within {self}")
        return value if self.is_whole else float(value)


class Texts(NamedTuple):
    """The texts that `accepts` names; `read` makes the setting's value of one, or raises ValueError."""

    accepts: str
    read: Callable[[Any], Any]
    pattern: str = r".*\S.*"

    def __str__(self) -> str:
        return self.accepts


def text(default: Any = MISSING) -> Any:
    """Declare a non-empty text."""
    return declared(default, Texts("a non-empty text", as_text))


def word(pattern: str, accepts: str, default: Any = MISSING) -> Any:
    """Declare a text that is `pattern` from end to end, which `accepts` says for people."""

    def read(raw: Any) -> str:
        if not re.fullmatch(pattern, as_text(raw)):
            raise ValueError
        return str(raw)

    return declared(default, Texts(accepts, read, pattern))


def flag(default: Any) -> Any:
    """Declare a setting that is true or false."""
    words = {"true": True, "false": False}

    def read(raw: Any) -> bool:
        found = raw if isinstance(raw, bool) else words.get(as_text(raw))
        if found is None:
            raise ValueError
        return found

    return declared(default, Texts("true or false", read))


def choice(default: Any, options: tuple[str, ...]) -> Any:
    """Declare one of a few words."""
    return word("|".join(map(re.escape, options)), f"one of {', '.join(options)}", default)


def whole(default: Any, low: int, high: int, unit: str) -> Any:
    """Declare a whole number of `unit` from `low` to `high`."""
    return declared(default, Range(low, high, unit, is_whole=True))


def number(default: Any, low: float, high: float, unit: str) -> Any:
    """Declare a number of `unit` from `low` to `high`."""
    return declared(default, Range(low, high, unit))


def declared(default: Any, accepts: Texts | Range) -> Any:
    """Declare a setting that `accepts` reads."""
    return field(default=default, metadata={"accepts": accepts})


def as_text(raw: Any) -> str:
    """Return `raw`. Raises ValueError unless it is a non-empty text."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw


def shown(given: Any) -> str:
    """Return `given` for an error: what may be a key, or a URL with a password, is not repeated."""
    if isinstance(given, str) and re.search("[\n@]", given):
        return "what has several lines or an @"
    try:
        return repr(given)
    except (ValueError, RecursionError):  # more digits than Python writes, or nested too deep
        return "what is too large to show"
