"""What an event for devices is about: keys, the numbers of their versions, and the kinds of delivery."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from eventplane.values import whole_number

MAX_KEY_PART: Final = 100
"""Longest part of a key, characters. Ours: three of them fit a sort key of DynamoDB (1,024 bytes)."""

MAX_VERSION_DIGITS: Final = 18
"""Most digits of a version: such a number is exact in SQLite, in DynamoDB and in 64 bits."""

MAX_AHEAD_MS: Final = 24 * 60 * 60 * 1_000
"""How far a state's version may be ahead of the clock when it is read as Unix milliseconds: a day. Ours."""

COUNTERS_END: Final = 10**9
"""From here on a version is no counter but a time, in seconds or milliseconds. Ours."""

MAX_COUNTER_STEP: Final = 1_000_000
"""How much a version below `COUNTERS_END` may grow at once. Ours."""

OF_SENDERS: Final = "command/source/"
"""What the keys start with that the plane makes for commands without one. Nobody names such a key: it would
belong to the first who did, and not to the sender that it is made from."""

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


def key_of_sender(sender: str, source: str) -> str:
    """Return the key of commands without one: those of one `sender` and `source` keep their order."""
    names = f"{sender}\n{source}"
    return f"{OF_SENDERS}{hashlib.sha256(names.encode()).hexdigest()[:32]}"
