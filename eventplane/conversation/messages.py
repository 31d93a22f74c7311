"""The events of a conversation: a request, and the reply of one participant."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from eventplane.contract import DeliveryGuarantee
from eventplane.dead_letter import detail_text
from eventplane.downlink.wire import KIND
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.limits import MAX_REPLY_BYTES
from eventplane.names import (
    CAUSATION_ID,
    CORRELATION_ID,
    DELIVER_BY,
    EXPIRY_TIME,
    REPLY_DEVICE,
    REPLY_TO,
    REPLY_TYPE,
)
from eventplane.reasons import Reason

SOURCE: Final = "/eventplane/conversation/"
"""Prefix of the `source` of replies; the participant's name follows."""

_COPIED: Final = ("traceparent", "tracestate", "routerhops")
"""The attributes of a request that its reply repeats."""


class ReplyError(EventPlaneError):
    """An event is not a readable reply; `detail` says why."""

    detail: str
    message = "not a reply: {detail}; send what `eventplane.conversation.messages.write_reply` returns"


class Status(StrEnum):
    """The result of a request at one participant."""

    HANDLED = "handled"
    """Its handler returned."""
    FAILED = "failed"
    """Its handler failed, and will not be tried again."""
    UNHANDLED = "unhandled"
    """It does not handle such events, or no more."""
    NOT_AWAITED = "not_awaited"
    """Its circuit is open, so the request does not wait for it (see `open_requests`); never sent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The `kind` of an error (a class or a reason word) and its `text` for people; cut where it is sent."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: BaseException | str) -> Failure:
        """Describe `error`, whatever its class makes of its text."""
        if isinstance(error, str):
            return cls(error, error)
        try:
            text = str(error)
        except Exception as other:  # noqa: BLE001 (it is another program's code)
            text = f"its text cannot be made: {type(other).__name__}"
        return cls(type(error).__name__, text)


@dataclass(frozen=True, slots=True)
class Replier:
    """`participant`, on the device `thing` if the request went down to that."""

    participant: str
    thing: str | None = None

    def __str__(self) -> str:
        return self.participant if self.thing is None else f"{self.thing}/{self.participant}"


@dataclass(frozen=True, slots=True)
class Reply:
    """The result at `replier`: the `answer` of its handler, or the `failure`.

    A `handled` one also has a failure when its answer could not be sent.
    """

    replier: Replier
    status: Status
    answer: Any = None
    failure: Failure | None = None


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
    """Return `event` as a request of `asker`, on `device` or (None) in the cloud; its own text is unchanged.

    It expires at `deadline`, unless it has an expiry of its own; None for an event that is worth handling
    without the asker. A device counts an expiry from `time`, so an event without one gets `now`; both are RFC
    3339. A request that is not `durable` is delivered at best effort: no hop stores it for a reader that is
    away. Raises `EnvelopeError` if `event` is a request already.
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
    """Return whether the sender of `event` waits for replies."""
    # A reply has the attributes of its request and must not be answered.
    return REPLY_TO in event.attributes and CORRELATION_ID in event.attributes and event.type != REPLY_TYPE


def replier_to(request: Envelope, participant: str) -> Replier:
    """Return `participant` as it answers `request`: with its device if the request was sent down to it."""
    came_down = KIND in request.attributes and REPLY_DEVICE not in request.attributes
    return Replier(participant, str(request.attributes.get("todevice")) if came_down else None)


def write_reply(request: Envelope, reply: Reply, time: str) -> Envelope:
    """Return the event that carries `reply` to the sender of `request`; `time` is RFC 3339.

    It is the same event each time, so that a redelivered request is not answered twice. An answer that is not
    JSON, or too large for a reply, is left out, and the failure says so.
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
        # Without `time` a device leaves the expiry to the cloud: its clock is not the asker's. When a request
        # of a device ends, a router has said in the cloud's time.
        attributes[EXPIRY_TIME] = asked.get(DELIVER_BY, asked[EXPIRY_TIME])
    else:
        attributes["time"] = time
    if REPLY_DEVICE in asked:
        attributes["todevice"] = asked[REPLY_DEVICE]
    attributes |= {name: asked[name] for name in _COPIED if name in asked}
    try:
        return _fitting(write_event(attributes, _data(reply)))
    except (EnvelopeError, TypeError, ValueError, RecursionError) as error:
        return write_event(attributes, _data(Reply(reply.replier, reply.status, None, Failure.of(error))))


def _fitting(event: Envelope) -> Envelope:
    size = len(event.json.encode("utf-8"))
    if size > MAX_REPLY_BYTES:
        raise EnvelopeError(Reason.TOO_LARGE, f"{size} bytes; a reply has at most {MAX_REPLY_BYTES}")
    return event


def _data(reply: Reply) -> dict[str, Any]:
    failure = reply.failure
    return {
        **asdict(reply.replier),
        "status": reply.status,
        "answer": reply.answer,
        "failure": failure and {name: detail_text(text) for name, text in asdict(failure).items()},
    }


def read_reply(event: Envelope) -> tuple[str, Reply]:
    """Read the correlation id of a reply, and its content. Members that later versions add are ignored.

    Raises `ReplyError`, also for a reply in the name of another participant than its sender.
    """
    correlation = event.attributes.get(CORRELATION_ID)
    data = event.data()
    if event.type != REPLY_TYPE or correlation is None or not isinstance(data, dict):
        raise ReplyError(f"type {event.type!r:.100}, {CORRELATION_ID} {correlation!r:.100}")
    try:
        status = Status(data["status"])
        failure, thing = data["failure"], data["thing"]
        # The text of an error may be empty.
        found = None
        if failure is not None:
            found = Failure(_text(failure["kind"], least=0), _text(failure["text"], least=0))
        replier = Replier(_text(data["participant"]), None if thing is None else _text(thing))
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"its data: {error!r:.200}") from error
    if status is Status.NOT_AWAITED:
        raise ReplyError(f"status {status} is never sent")
    if not _speaks_for(event.sender, replier):
        raise ReplyError(f"it is in the name of {str(replier)!r:.200}, and {str(event.sender)!r} sent it")
    return str(correlation), Reply(replier, status, data.get("answer"), found)


def _speaks_for(sender: Sender, replier: Replier) -> bool:
    """Return whether the authenticated `sender` of a reply is its `replier`, or the replier's device."""
    if sender.device != (replier.thing or ""):
        return False
    return sender.service == replier.participant or (bool(sender.device) and not sender.service)


def _text(value: object, least: int = 1) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise TypeError(f"{value!r:.100} is not a text")
    return value
