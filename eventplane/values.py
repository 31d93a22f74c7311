"""Timestamps (RFC 3339, the form of CloudEvents' type Timestamp), whole numbers, and random draws."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TypeAlias

MAX_TIME_MS = 253_402_300_799_999
"""Latest accepted time, Unix milliseconds: the end of the year 9999, the last that Python represents."""
_MIN_TIME_MS = -62_135_596_800_000

_HOUR_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
TIMESTAMP_FORM = (
    rf"(?!0000)\d{{4}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    rf"[Tt]{_HOUR_MINUTE}:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]{_HOUR_MINUTE})"
)
"""The pattern of all timestamps, and of some of a day or leap second that does not exist. Digits: ASCII."""

_TIMESTAMP = re.compile(TIMESTAMP_FORM, re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP_SECOND = re.compile(r"(:\d\d):60")


def is_timestamp(value: str) -> bool:
    """Return whether `value` is an RFC 3339 timestamp, of any precision.

    Second 60 is a leap second, which occurs at the end of a month in UTC only (RFC 3339, section 5.7). Any
    month is accepted: leap seconds are announced half a year ahead, so a list of them would become outdated.
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
    """Return `time`, which has a zone, in UTC with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def timestamp_of_ms(at_ms: int) -> str:
    """Return the timestamp of `at_ms`, Unix milliseconds."""
    # Beyond the years of UTC in another zone, as `timestamp_ms` also reads 0001-01-01T00:00:00+01:00.
    offset = timedelta(minutes=1_439 * ((at_ms < _MIN_TIME_MS) - (at_ms > MAX_TIME_MS)))
    local = _EPOCH.replace(tzinfo=timezone(offset)) + (timedelta(milliseconds=at_ms) + offset)
    return local.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_ms(value: str) -> int:
    """Return the Unix milliseconds of an RFC 3339 timestamp that was checked; finer digits are cut."""
    text, leaps = _LEAP_SECOND.subn(r"\1:59", value.upper())
    # A difference: a sum could exceed the years of a datetime, a float would round.
    elapsed = datetime.fromisoformat(text) - _EPOCH + timedelta(seconds=leaps)
    return elapsed // timedelta(milliseconds=1)


def whole_number(value: object, most: int, least: int = 0) -> int:
    """Return the integer `value`, or the one that it spells in decimal digits, from `least` to `most`.

    Raises ValueError. A text is refused by its length before it is converted: `int()` takes time by the
    square of the digits, and refuses more than 4,300 with an error that a caller may not expect.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ValueError(f"not a whole number from {least} to {most}")


RandomBytes: TypeAlias = Callable[[int], bytes]
"""Draws so many bytes. A program's wiring passes in the kernel's, at each use, because clones of a snapshot
share what was drawn before; a simulation passes in that of a seed."""


def random_share(draw: RandomBytes) -> float:
    """Draw a number from 0 up to 1."""
    return (int.from_bytes(draw(7)) >> 3) / (1 << 53)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the sorted, non-empty values lie."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    """Return the end of a remedy: which of `known` was probably meant by `name`."""
    from difflib import get_close_matches  # over a megabyte of memory, for a program that is about to end

    near = get_close_matches(name, known, 1)
    return f"did you mean {prefix}{near[0]}?" if near else f"use one of: {', '.join(sorted(known))}"
