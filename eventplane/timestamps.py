"""RFC 3339 timestamps, the form of CloudEvents' type Timestamp, to and from Unix milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP_SECOND = re.compile(r"(:\d\d):60")


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
