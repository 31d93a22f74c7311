"""Questions of services on the device for the current state of a key, and their answers.

A service that starts later than a state came asks for it. What it may know is what it would have been sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from edge.questions.wire import QuestionError, read_members, text


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """What is the current state of `key`? `id` is the asker's; `inbox` is the address of its inbox."""

    id: str
    key: str
    inbox: str


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """To the question `id`: the text of its key's newest event, None when there is none for the asker."""

    id: str
    json: str | None


def write_question(id: str, key: str) -> bytes:
    """The payload that asks."""
    return json.dumps({"id": id, "key": key}).encode("ascii")


def read_question(payload: bytes, inbox: str) -> StateQuestion:
    """What the service with this `inbox` asks. Raises `QuestionError`."""
    members = read_members(payload)
    return StateQuestion(text(members, "id"), text(members, "key"), inbox)


def write_answer(answer: StateAnswer) -> bytes:
    """The payload that answers; the event stands in it as a text, so that it stays as its sender wrote it."""
    return json.dumps({"id": answer.id, "event": answer.json}, ensure_ascii=False).encode("utf-8")


def read_answer(payload: bytes) -> StateAnswer:
    """The answer in a payload. Raises `QuestionError`."""
    members = read_members(payload)
    event = members.get("event", members)
    if event is not None and not isinstance(event, str):
        raise QuestionError("`event` is neither text nor null; send what `write_answer` makes")
    return StateAnswer(text(members, "id"), event)
