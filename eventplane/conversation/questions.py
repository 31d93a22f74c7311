"""Questions of services on a device, and the forwarder's answers, as they travel on control topics.

A service asks for the current state of a key, which may have been set before the service started, and who
handles an event before it waits for replies. Every question and its answer are JSON objects with the asker's
`id`, read strictly; members that later versions add are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError, EventPlaneError

MAX_TEXT_CHARACTERS: Final = 400
"""Most characters of a text other than an event. Ours; a key has 302 at most."""


class QuestionError(EventPlaneError):
    """A payload is not a question, or not an answer to one: `problem` says why."""

    problem: str
    message = "{problem}; send what `eventplane.conversation.questions` writes"


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """Asks for the current state of `key`; `inbox` is the address of the asker's inbox."""

    id: str
    key: str
    inbox: str


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """Answers question `id` with the text of the key's newest event, None if there is none for the asker.

    `problem` is why the forwarder cannot answer, None if it can.
    """

    id: str
    json: str | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HandlersQuestion:
    """Asks who handles an event like `event`, which has no data; `inbox` is the asker's inbox address."""

    id: str
    event: Envelope
    inbox: str


@dataclass(frozen=True, slots=True)
class HandlersAnswer:
    """Answers question `id`: the participants whose `handlers` the event reaches from the device `thing`.

    `problem` is why the asker may not ask with such an event, None if it may. `comes_again`: an event that
    the asker's own handler fails to handle is redelivered. `announced` has an id for the last announcement of
    each handler whose announcements reach the device.
    """

    id: str
    thing: str
    handlers: tuple[str, ...]
    comes_again: bool
    problem: str | None = None
    announced: Mapping[str, str] = field(default_factory=dict)


def write_state_question(id: str, key: str) -> bytes:
    """Return the payload of a question for the state of `key`."""
    return json.dumps({"id": id, "key": key}).encode("ascii")


def read_state_question(payload: bytes, inbox: str) -> StateQuestion:
    """Read the question of the service with this `inbox`. Raises `QuestionError`."""
    members = _members(payload)
    return StateQuestion(_text(members, "id"), _text(members, "key"), inbox)


def write_state_answer(answer: StateAnswer) -> bytes:
    """Return the payload of an answer; the event is a text in it, so that it stays as its sender wrote it."""
    members = {"id": answer.id, "event": answer.json, "problem": answer.problem}
    return json.dumps(members, ensure_ascii=False).encode("utf-8")


def read_state_answer(payload: bytes) -> StateAnswer:
    """Read the answer in a payload. Raises `QuestionError`."""
    members = _members(payload)
    event = members.get("event", members)
    if event is not None and not isinstance(event, str):
        raise QuestionError("`event` is neither text nor null")
    return StateAnswer(_text(members, "id"), event, _optional_text(members, "problem"))


def write_handlers_question(id: str, event: Envelope) -> bytes:
    """Return the payload of a question who handles `event`. Routes read attributes only: no data is sent."""
    return json.dumps({"id": id, "event": dict(event.attributes)}).encode("ascii")


def read_handlers_question(payload: bytes, inbox: str) -> HandlersQuestion:
    """Read the question of the service with this `inbox`. Raises `QuestionError`."""
    members = _members(payload)
    event = members.get("event")
    if not isinstance(event, dict):
        raise QuestionError("`event` has no attributes")
    try:
        return HandlersQuestion(_text(members, "id"), parse_event(json.dumps(event)), inbox)
    except EnvelopeError as error:
        raise QuestionError(f"`event`: {error}") from error


def write_handlers_answer(answer: HandlersAnswer) -> bytes:
    """Return the payload of an answer."""
    return json.dumps(asdict(answer), ensure_ascii=False).encode("utf-8")


def read_handlers_answer(payload: bytes) -> HandlersAnswer:
    """Read the answer in a payload. Raises `QuestionError`."""
    members = _members(payload)
    handlers, again = members.get("handlers"), members.get("comes_again")
    if not isinstance(handlers, list) or not all(isinstance(each, str) and each for each in handlers):
        raise QuestionError("`handlers` is not a list of names")
    if not isinstance(again, bool):
        raise QuestionError("`comes_again` is neither true nor false")
    announced = members.get("announced", {})
    if not isinstance(announced, dict) or not all(isinstance(each, str) for each in announced.values()):
        raise QuestionError("`announced` is not an object of texts")
    return HandlersAnswer(
        _text(members, "id"),
        _text(members, "thing"),
        tuple(handlers),
        again,
        _optional_text(members, "problem"),
        announced,
    )


def _members(payload: bytes) -> dict[str, Any]:
    try:
        members = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise QuestionError(
            f"not JSON: {error}; send what `eventplane.conversation.questions` writes"
        ) from error
    if not isinstance(members, dict):
        raise QuestionError("not a JSON object")
    return members


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARACTERS:
        raise QuestionError(f"`{name}` is not a text of 1 to {MAX_TEXT_CHARACTERS} characters")
    return value


def _optional_text(members: dict[str, Any], name: str) -> str | None:
    return None if members.get(name) is None else _text(members, name)
