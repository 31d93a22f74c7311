"""What all questions and answers share: JSON objects with the asker's `id`, read strictly."""

from __future__ import annotations

import json
from typing import Any

from eventplane.errors import EventPlaneError

_MOST_CHARACTERS = 400
"""A key has 302 at most."""


class QuestionError(EventPlaneError):
    """A payload is no question, or no answer to one."""


def read_members(payload: bytes) -> dict[str, Any]:
    """The members of a payload. Raises `QuestionError`."""
    try:
        members = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"not JSON: {error}; send what `edge.questions` writes") from error
    if not isinstance(members, dict):
        raise QuestionError("no JSON object; send what `edge.questions` writes")
    return members


def text(members: dict[str, Any], name: str) -> str:
    """A text of 1 to 400 characters. Raises `QuestionError`."""
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_CHARACTERS:
        raise QuestionError(f"`{name}` is no text of 1 to {_MOST_CHARACTERS} characters")
    return value
