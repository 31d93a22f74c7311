"""The names of an event in whatever has them: they are looked for where nothing else can be relied on."""

from __future__ import annotations

import base64
import json

from eventplane.delivery import DEAD_LETTER_TYPE

Key = tuple[str, str]
"""`source` and `id` of an event."""


def names_in(text: bytes | str) -> Key | None:
    """The `source` and `id` that a text has, if it is JSON that has them; it need not be a valid event."""
    try:
        members = json.loads(text)
        source, id = members["source"], members["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return (source, id) if isinstance(source, str) and isinstance(id, str) else None


def names_in_letter(text: str) -> Key | None:
    """The `source` and `id` in the original of a dead-letter event, if it has them."""
    try:
        members = json.loads(text)
        if members["type"] != DEAD_LETTER_TYPE:
            return None
        return names_in(base64.b64decode(members["data"]["original_base64"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
