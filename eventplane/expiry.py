"""When an event is no longer worth delivering: the `expirytime` attribute against a given moment."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from eventplane.envelope import Envelope

_LEAP_SECOND = re.compile(r"(:\d\d):60")


def timestamp_ms(value: str) -> int:
    """Unix milliseconds of an RFC 3339 timestamp that the envelope has checked; finer digits are cut."""
    text, leaps = _LEAP_SECOND.subn(r"\1:59", value.upper())
    moment = datetime.fromisoformat(text) + timedelta(seconds=leaps)
    # Not `timestamp()`: a float's rounding could make an event expire a millisecond early.
    return (moment - datetime.fromisoformat("1970-01-01T00:00:00Z")) // timedelta(milliseconds=1)


def is_expired(event: Envelope, now_ms: int) -> bool:
    """Whether `event` has an `expirytime`, and it is not later than `now_ms` (Unix milliseconds)."""
    expirytime = event.attributes.get("expirytime")
    return expirytime is not None and timestamp_ms(str(expirytime)) <= now_ms
