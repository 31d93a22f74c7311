"""The numbers that a setting may have, and what was probably meant by an unknown name."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple


def nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    """Return the end of a remedy: which of `known` was probably meant by `name`."""
    from difflib import get_close_matches  # over a megabyte of memory, for a program that is about to end

    near = get_close_matches(name, known, 1)
    return f"did you mean {prefix}{near[0]}?" if near else f"use one of: {', '.join(sorted(known))}"


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
