"""Ranges of settings: one way to read a number, to refuse it, and to say what is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan


@dataclass(frozen=True, slots=True)
class Range:
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
        value: float = nan
        if isinstance(raw, str):
            value = int(raw) if self.is_whole else float(raw)
        elif isinstance(raw, int | float) and not isinstance(raw, bool | float if self.is_whole else bool):
            value = raw
        # Written so that NaN is out of every range.
        if not self.low <= value <= self.high:
            raise ValueError(f"not within {self}")
        return value if self.is_whole else float(value)
