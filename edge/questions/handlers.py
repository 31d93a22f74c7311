"""Questions of services on the device for who handles an event, before they wait for replies to it.

The forwarder has the contract, and knows which device it runs on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.questions.wire import QuestionError, read_members, text
from eventplane.envelope import Envelope, EnvelopeError, parse_event


@dataclass(frozen=True, slots=True)
class HandlersQuestion:
    """Who handles an event like `event`, which has no data? `inbox` is the address of the asker's inbox."""

    id: str
    event: Envelope
    inbox: str


@dataclass(frozen=True, slots=True)
class HandlersAnswer:
    """To the question `id`: the participants whose `handlers` the event reaches, from the device `thing`.

    `problem` says why the asker may not ask with such an event, None if it may. `comes_again`: what the
    asker's own handler fails to handle is delivered to it again. `announced` names the last announcement of
    each of them whose announcements the device hears; each announcement has a name of its own.
    """

    id: str
    thing: str
    handlers: tuple[str, ...]
    comes_again: bool
    problem: str | None = None
    announced: Mapping[str, str] = field(default_factory=dict)


def write_question(id: str, event: Envelope) -> bytes:
    """The payload that asks: routes are decided by attributes, so the data stays at home."""
    return json.dumps({"id": id, "event": dict(event.attributes)}).encode("ascii")


def read_question(payload: bytes, inbox: str) -> HandlersQuestion:
    """What the service with this `inbox` asks. Raises `QuestionError`."""
    members = read_members(payload)
    event = members.get("event")
    if not isinstance(event, dict):
        raise QuestionError("`event` has no attributes; send what `edge.questions` writes")
    try:
        return HandlersQuestion(text(members, "id"), parse_event(json.dumps(event)), inbox)
    except EnvelopeError as error:
        raise QuestionError(f"`event`: {error}") from error


def write_answer(answer: HandlersAnswer) -> bytes:
    """The payload that answers."""
    members = {
        "id": answer.id,
        "thing": answer.thing,
        "handlers": list(answer.handlers),
        "comes_again": answer.comes_again,
        "problem": answer.problem,
        "announced": dict(answer.announced),
    }
    return json.dumps(members, ensure_ascii=False).encode("utf-8")


def read_answer(payload: bytes) -> HandlersAnswer:
    """The answer in a payload; members that later versions add are ignored. Raises `QuestionError`."""
    members = read_members(payload)
    handlers, again = members.get("handlers"), members.get("comes_again")
    if not isinstance(handlers, list) or not all(isinstance(each, str) and each for each in handlers):
        raise QuestionError("`handlers` is no list of names")
    if not isinstance(again, bool):
        raise QuestionError("`comes_again` is neither true nor false")
    problem = None if members.get("problem") is None else text(members, "problem")
    announced = members.get("announced", {})
    if not isinstance(announced, dict) or not all(isinstance(each, str) for each in announced.values()):
        raise QuestionError("`announced` is no object of texts")
    return HandlersAnswer(
        text(members, "id"), text(members, "thing"), tuple(handlers), again, problem, announced
    )
