"""Questions of services on the device for the current state of a key, and their answers.

A service that starts later than a state came asks for it. What it may know is what it would have been sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from eventplane.errors import EventPlaneError


class QuestionError(EventPlaneError):
    """A payload is no question, or no answer to one."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is the current state of `key`? `id` is the asker's; `inbox` is the address of its inbox."""

    id: str
    key: str
    inbox: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To the question `id`: the text of its key's newest event, None when there is none for the asker."""

    id: str
    json: str | None


def write_question(id: str, key: str) -> bytes:
    """The payload that asks."""
    return json.dumps({"id": id, "key": key}).encode("ascii")


def read_question(payload: bytes, inbox: str) -> Question:
    """What the service with this `inbox` asks. Raises `QuestionError`."""
    members = _members(payload)
    return Question(_text(members, "id"), _text(members, "key"), inbox)


def write_answer(answer: Answer) -> bytes:
    """The payload that answers; the event stands in it as a text, so that it stays as its sender wrote it."""
    return json.dumps({"id": answer.id, "event": answer.json}, ensure_ascii=False).encode("utf-8")


def read_answer(payload: bytes) -> Answer:
    """The answer in a payload. Raises `QuestionError`."""
    members = _members(payload)
    event = members.get("event", members)
    if event is not None and not isinstance(event, str):
        raise QuestionError("`event` is neither text nor null; send what `write_answer` makes")
    return Answer(_text(members, "id"), event)


def _members(payload: bytes) -> dict[str, Any]:
    try:
        members = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"not JSON: {error}; send what `write_question` makes") from error
    if not isinstance(members, dict):
        raise QuestionError("no JSON object; send what `write_question` makes")
    return members


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_CHARACTERS:
        raise QuestionError(f"`{name}` is no text of 1 to {_MOST_CHARACTERS} characters")
    return value


_MOST_CHARACTERS = 400
"""A key has 302 at most."""
