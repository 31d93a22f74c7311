"""A request: an event that says who asks, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eventplane.contract import DeliveryGuarantee
from eventplane.conversation.attributes import (
    CAUSATION_ID,
    CORRELATION_ID,
    EXPIRY_TIME,
    REPLY_DEVICE,
    REPLY_TO,
    REPLY_TYPE,
)
from eventplane.downlink.wire import KIND
from eventplane.envelope import Envelope, write_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.limits import MAX_DETAIL_CHARACTERS, MAX_REPLY_BYTES
from eventplane.sender import Sender


class ReplyError(EventPlaneError):
    """An event is no reply that can be read; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"no reply: {detail}; send what `eventplane.conversation.reply` writes")
        self.detail = detail


def write_request(
    event: Envelope,
    *,
    asker: str,
    device: str | None,
    correlation_id: str,
    deadline: str | None,
    now: str,
    durable: bool = True,
) -> Envelope:
    """`event` as a request of `asker`, on `device` or (None) in the cloud; its own text stays as it is.

    One that is not `durable` is delivered at best effort: nobody keeps it for a reader that is away.

    At `deadline` it expires, so that nobody works for an asker that is gone; None for an event that is worth
    handling anyway. One that expires by its own word keeps that, and one without a `time` gets `now`, since a
    device counts an expiry from it; both are RFC 3339. Raises `EnvelopeError` for a request.
    """
    added = {REPLY_TO: asker, CORRELATION_ID: correlation_id}
    if device is not None:
        added[REPLY_DEVICE] = device
    if deadline is not None and EXPIRY_TIME not in event.attributes:
        added[EXPIRY_TIME] = deadline
        if "time" not in event.attributes:
            added["time"] = now
    if not durable:
        added[DELIVERY_GUARANTEE] = DeliveryGuarantee.BEST_EFFORT
    return event.stamped(**added)


def is_request(event: Envelope) -> bool:
    """Whether somebody waits for a reply to `event`."""
    # A reply has the attributes of its request; whoever reads one in its inbox must not answer it.
    return REPLY_TO in event.attributes and CORRELATION_ID in event.attributes and event.type != REPLY_TYPE


SOURCE = "/eventplane/conversation/"
"""What the `source` of replies starts with; the participant's name follows."""


class Status(StrEnum):
    """What became of a request at one participant."""

    HANDLED = "handled"
    """Its handler has returned."""
    FAILED = "failed"
    """Its handler failed, and will not be tried again."""
    UNHANDLED = "unhandled"
    """It does not handle such events, or no more."""
    NOT_AWAITED = "not_awaited"
    """It left so many requests unanswered that nobody waits for it (see `circuit`); never sent."""


_SENT = (Status.HANDLED, Status.FAILED, Status.UNHANDLED)


@dataclass(frozen=True, slots=True)
class Failure:
    """The `kind` of an error (a class or a reason word) and its `text` for people; cut where it is sent."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What is told of `error`."""
        return cls(type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class Replier:
    """`participant`, on the device `thing` if the request went down to that."""

    participant: str
    thing: str | None = None

    def __str__(self) -> str:
        return self.participant if self.thing is None else f"{self.thing}/{self.participant}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What `replier` said: its handler's `answer`, or the `failure`.

    A `handled` one has a failure as well when the answer itself could not be sent.
    """

    replier: Replier
    status: Status
    answer: Any = None
    failure: Failure | None = None


def write_reply(request: Envelope, reply: Reply, time: str) -> Envelope:
    """The event that brings `reply` to who sent `request`; `time` is RFC 3339.

    It is the same event each time, so that a handler that gets the request again does not answer twice. An
    answer that is no JSON, or too large for a reply, is left out, and the failure says so.
    """
    asked = request.attributes
    attributes = {
        "id": f"{asked[CORRELATION_ID]}.{reply.replier}",
        "source": SOURCE + reply.replier.participant,
        "type": REPLY_TYPE,
        REPLY_TO: asked[REPLY_TO],
        CORRELATION_ID: asked[CORRELATION_ID],
        CAUSATION_ID: request.id,
    }
    if EXPIRY_TIME in asked:
        # Without `time` a device leaves the expiry to the cloud: its clock is not the asker's.
        attributes[EXPIRY_TIME] = asked[EXPIRY_TIME]
    else:
        attributes["time"] = time
    if REPLY_DEVICE in asked:
        attributes["todevice"] = asked[REPLY_DEVICE]
    for name in ("traceparent", "tracestate", "routerhops"):
        if name in asked:
            attributes[name] = asked[name]
    try:
        return _fitting(write_event(attributes, _data(reply)))
    except (EnvelopeError, TypeError, ValueError, RecursionError) as error:
        return write_event(attributes, _data(Reply(reply.replier, reply.status, None, Failure.of(error))))


def replier_to(request: Envelope, participant: str) -> Replier:
    """`participant` as it answers `request`: on a device it names that if the request came down to it."""
    came_down = KIND in request.attributes and REPLY_DEVICE not in request.attributes
    return Replier(participant, str(request.attributes.get("todevice")) if came_down else None)


def read_reply(event: Envelope) -> tuple[str, Reply]:
    """The correlation id of a reply, and what it says. Members that later versions add are ignored.

    Raises `ReplyError`, also for a reply in another's name than its sender's.
    """
    correlation = event.attributes.get(CORRELATION_ID)
    data = event.data()
    if event.type != REPLY_TYPE or correlation is None or not isinstance(data, dict):
        raise ReplyError(f"type {event.type!r:.100}, {CORRELATION_ID} {correlation!r:.100}")
    try:
        status = Status(data["status"])
        failure = data["failure"]
        found = None if failure is None else _failure(failure["kind"], failure["text"])
        thing = data["thing"]
        replier = Replier(_text(data["participant"]), None if thing is None else _text(thing))
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"its data: {error!r:.200}") from error
    if status not in _SENT:
        raise ReplyError(f"status {status} is never sent")
    if not _speaks_for(event.sender, replier):
        raise ReplyError(f"it is in the name of {str(replier)!r:.200}, and {str(event.sender)!r} sent it")
    return str(correlation), Reply(replier, status, data.get("answer"), found)


def _speaks_for(sender: Sender, replier: Replier) -> bool:
    """Whether the authenticated `sender` of a reply is its `replier`, or the whole device that one is on."""
    if sender.device != (replier.thing or ""):
        return False
    return sender.service == replier.participant or (bool(sender.device) and not sender.service)


def _fitting(event: Envelope) -> Envelope:
    size = len(event.json.encode("utf-8"))
    if size > MAX_REPLY_BYTES:
        raise EnvelopeError("too_large", f"{size} bytes; a reply has at most {MAX_REPLY_BYTES}")
    return event


def _data(reply: Reply) -> dict[str, Any]:
    failure = reply.failure
    return {
        "participant": reply.replier.participant,
        "thing": reply.replier.thing,
        "status": reply.status,
        "answer": reply.answer,
        "failure": None
        if failure is None
        else {
            "kind": failure.kind[:MAX_DETAIL_CHARACTERS],
            "text": failure.text[:MAX_DETAIL_CHARACTERS],
        },
    }


def _failure(kind: object, text: object) -> Failure:
    # The text of an error may well be empty.
    if not isinstance(kind, str) or not isinstance(text, str):
        raise TypeError(f"{kind!r:.100} or {text!r:.100} is no text")
    return Failure(kind, text)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r:.100} is no text")
    return value
