"""Timestamps (RFC 3339, the form of CloudEvents' type Timestamp), and whole numbers read with a bound."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

MAX_TIME_MS = 253_402_300_799_999
"""Latest moment that is believed, Unix milliseconds: the last of the year 9999, the last that Python has."""

_HOUR_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIMESTAMP = re.compile(
    rf"(?!0000)\d{{4}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    rf"[Tt]{_HOUR_MINUTE}:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]{_HOUR_MINUTE})",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP_SECOND = re.compile(r"(:\d\d):60")


def is_timestamp(value: str) -> bool:
    """Whether `value` is an RFC 3339 timestamp, of any precision.

    Second 60 is a leap second, which UTC has at the end of a month only (RFC 3339, section 5.7). Of any
    month: which of them have one is announced half a year before, so no list here would stay true.
    """
    if not _TIMESTAMP.fullmatch(value):
        return False
    if value[17:19] == "60":
        return _ends_month(value.upper())
    # Every month has the days up to 28.
    if value[8:10] > "28":
        try:
            date.fromisoformat(value[:10])
        except ValueError:
            return False
    return True


def _ends_month(value: str) -> bool:
    try:
        last = datetime.fromisoformat(_LEAP_SECOND.sub(r"\1:59", value)).astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or none of the years that there are
        return False
    try:
        last.replace(day=last.day + 1)
    except ValueError:
        return (last.hour, last.minute) == (23, 59)
    return False


def timestamp(time: datetime) -> str:
    """`time`, which names its zone, in UTC with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def timestamp_of_ms(at_ms: int) -> str:
    """The timestamp of `at_ms`, Unix milliseconds."""
    return timestamp(_EPOCH + timedelta(milliseconds=at_ms))


def timestamp_ms(value: str) -> int:
    """Unix milliseconds of an RFC 3339 timestamp that the envelope has checked; finer digits are cut."""
    text, leaps = _LEAP_SECOND.subn(r"\1:59", value.upper())
    # Differences only: a sum could leave the years that a datetime has, a float would round.
    elapsed = datetime.fromisoformat(text) - _EPOCH + timedelta(seconds=leaps)
    return elapsed // timedelta(milliseconds=1)


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
