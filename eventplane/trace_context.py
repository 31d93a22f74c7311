"""The `traceparent` of W3C Trace Context, which the distributed tracing extension of CloudEvents carries."""

from __future__ import annotations

import re

_IDS_AND_FLAGS = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
# Version 00 ends after the flags, a later one may say more after a further hyphen, ff is none.
_TRACEPARENT = re.compile(f"(?:00-{_IDS_AND_FLAGS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS_AND_FLAGS}(?:-.*)?)")

_CHARACTERS = 55
"""Of version 00, and of what a later one has in common with it."""


def is_traceparent(value: str) -> bool:
    """Whether `value` names a trace and a span in it, as version 00 or a later one that starts alike."""
    return _TRACEPARENT.fullmatch(value) is not None


def in_short(value: str) -> str:
    """The `traceparent` without what a later version says behind its flags, which may be of any length."""
    return value[:_CHARACTERS]
