"""What is sent when a letter goes back: the message again, or the original that a dead-letter event keeps."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Contract, ParticipantKind
from eventplane.envelope import EnvelopeError, parse_event
from eventplane.limits import MAX_SQS_ATTRIBUTES
from eventplane.resource_names import FIFO_SUFFIX
from eventplane.sqs_binding import DATA_TYPE, to_message
from eventplane.topics import device_topic
from operations.letters import Letter
from operations.queues import PlaneQueues
from operations.reading import Message

MARK: Final = "redriven"
"""The message attribute that names the run which sent a message back: a run never moves it twice."""

OPERATOR: Final = "operator"
"""The client id of a frame that an operator puts back, when the archive does not say whose it was."""

BAD_FRAME: Final = "bad_frame"
"""The reason of a letter whose original is a frame of the ingest rule, or was to be one."""

_TRACE: Final = "AWSTraceHeader"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One entry for SendMessageBatch to the queue at `url`; `bytes` as SQS counts them."""

    url: str
    entry: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        attributes: Mapping[str, Mapping[str, Any]] = self.entry.get("MessageAttributes", {})
        return _size(self.entry["MessageBody"]) + sum(
            _size(name) + sum(_size(part) for part in each.values()) for name, each in attributes.items()
        )


@dataclass(frozen=True, slots=True)
class Stays:
    """Why a letter cannot go back, and what to do instead."""

    reason: str


def again(message: Message, url: str, run: str) -> Outgoing:
    """The `message` of a dead-letter queue once more, for its source queue at `url`."""
    entry: dict[str, Any] = {"MessageBody": message["Body"]}
    system = message["Attributes"]
    attributes = {
        name: {key: value for key, value in each.items() if key in ("DataType", "StringValue", "BinaryValue")}
        for name, each in message.get("MessageAttributes", {}).items()
    }
    if MARK in attributes or len(attributes) < MAX_SQS_ATTRIBUTES:
        attributes[MARK] = {"DataType": DATA_TYPE, "StringValue": run}
    if attributes:
        entry["MessageAttributes"] = attributes
    if trace := system.get(_TRACE):
        entry["MessageSystemAttributes"] = {_TRACE: {"DataType": DATA_TYPE, "StringValue": trace}}
    if group := system.get("MessageGroupId"):
        entry["MessageGroupId"] = group
    if url.endswith(FIFO_SUFFIX):
        # With its old deduplication id SQS would accept it and drop it, if the event was sent within the last
        # five minutes. This one is the same for a second try at the same message, and for nothing else.
        entry["MessageDeduplicationId"] = _digest(message["MessageId"], system["MessageDeduplicationId"])
    return Outgoing(url, entry)


def original(
    letter: Letter, queues: PlaneQueues, contract: Contract, run: str, now_ms: int
) -> Outgoing | Stays:
    """The original that the dead-letter event `letter` keeps, for the queue of the channel it came over.

    `now_ms` (Unix milliseconds) is when a device's event is accepted anew.
    """
    if problem := _incomplete(letter):
        return Stays(problem)
    if letter.channel == contract.device.outbox.address:
        url = queues.ingest_url
        body = _frame(letter, now_ms)
    else:
        url = queues.channel_urls.get(letter.channel or "")
        body = letter.original.decode("utf-8", "replace")
    if url is None:
        return Stays(_no_queue(letter.channel, contract))
    entry: dict[str, Any] = {"MessageBody": body}
    if url.endswith(FIFO_SUFFIX):
        entry["MessageGroupId"] = _group(body)
        entry["MessageDeduplicationId"] = _digest(letter.id, letter.place)
    entry["MessageAttributes"] = {MARK: {"DataType": DATA_TYPE, "StringValue": run}}
    return Outgoing(url, entry)


def _frame(letter: Letter, now_ms: int) -> str:
    if letter.reason == BAD_FRAME:
        return letter.original.decode("utf-8", "replace")  # it is the frame itself
    client_id = letter.client_id or OPERATOR
    return json.dumps(
        {
            "data": base64.b64encode(letter.original).decode("ascii"),
            "topic": device_topic(client_id, "outbox"),
            "clientid": client_id,
            "principal": OPERATOR,
            "timestamp": now_ms,
        }
    )


def _incomplete(letter: Letter) -> str | None:
    if letter.original_bytes is None:
        return "the archive has no original of what services in the cloud send; redrive its letter, --letters"
    if not letter.is_whole:
        return f"the letter has {len(letter.original)} of {letter.original_bytes} bytes; have it sent again"
    if letter.reason != BAD_FRAME:
        try:
            parse_event(letter.original)
        except EnvelopeError as error:
            return f"it would be refused again ({error}); correct the sender, which sends it anew"
    return None


def _no_queue(channel: str | None, contract: Contract) -> str:
    homes = {
        each.address: participant.kind
        for participant in contract.participants.values()
        for each in (participant.inbox, participant.outbox)
    }
    if homes.get(channel or "") is ParticipantKind.DEVICE_SERVICE:
        return (
            f"{channel} is on the device, where the cloud cannot put it; correct the sender, which sends anew"
        )
    return f"channel {channel} has no queue here; send it again where it came from"


def _group(body: str) -> str:
    try:
        return to_message(parse_event(body)).group
    except EnvelopeError:
        return _digest(body)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _size(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
