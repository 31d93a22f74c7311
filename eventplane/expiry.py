"""When an event is no longer worth delivering: the `expirytime` attribute against a given moment."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from eventplane.envelope import Envelope

_LEAP_SECOND = re.compile(r"(:\d\d):60")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


def timestamp_ms(value: str) -> int:
    """Unix milliseconds of an RFC 3339 timestamp that the envelope has checked; finer digits are cut."""
    text, leaps = _LEAP_SECOND.subn(r"\1:59", value.upper())
    # Differences only: a sum could leave the years that a datetime has, a float would round.
    elapsed = datetime.fromisoformat(text) - _EPOCH + timedelta(seconds=leaps)
    return elapsed // timedelta(milliseconds=1)


def is_expired(event: Envelope, now_ms: int) -> bool:
    """Whether `event` has an `expirytime`, and it is not later than `now_ms` (Unix milliseconds)."""
    expirytime = event.attributes.get("expirytime")
    return expirytime is not None and timestamp_ms(str(expirytime)) <= now_ms
