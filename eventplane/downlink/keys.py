"""What an event for devices is about: keys, the numbers of their versions, and the kinds of delivery."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from eventplane.whole_numbers import whole_number

MAX_KEY_PART: Final = 100
"""Longest part of a key, characters. Ours: three of them fit a sort key of DynamoDB (1,024 bytes)."""

MAX_VERSION_DIGITS: Final = 18
"""Most digits of a version: such a number is exact in SQLite, in DynamoDB and in 64 bits."""

_PART: Final = rf"[A-Za-z0-9._~-]{{1,{MAX_KEY_PART}}}"
_KEY: Final = re.compile(rf"{_PART}/{_PART}/{_PART}")
_UID: Final = re.compile(_PART)


def is_key(text: str) -> bool:
    """Whether `text` is a key: `kind/namespace/name`."""
    return _KEY.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Whether `text` can name one incarnation of an object."""
    return _UID.fullmatch(text) is not None


def number(value: object) -> int | None:
    """The version that `value` writes, in decimal digits or as an Integer; None where it writes none."""
    try:
        return whole_number(value, 10**MAX_VERSION_DIGITS - 1)
    except ValueError:
        return None


def key_of_source(source: str) -> str:
    """The key of commands without one: those of one `source` keep their order."""
    return f"command/source/{hashlib.sha256(source.encode()).hexdigest()[:32]}"
