"""Whole numbers that others write, read with a bound."""

from __future__ import annotations

MAX_TIME_MS = 253_402_300_799_999
"""Latest moment that is believed, Unix milliseconds: the last of the year 9999, the last that Python has."""


def whole_number(value: object, most: int, least: int = 0) -> int:
    """The number from `least` to `most` that `value` is or, as a text of decimal digits, writes.

    Raises ValueError. A text is refused by its length before it is converted: `int()` takes time by the
    square of the digits, and refuses more than 4,300 with an error that a caller may not expect.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ValueError(f"not a whole number from {least} to {most}")
