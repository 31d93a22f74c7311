"""Prepare a dead letter for sending: the message again, or the original that a dead-letter event keeps.

An original goes back only where its true sender could have sent it, and under that name. The plane's own
letters know the sender from the transport; any other letter can only lead to whoever wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Contract, ParticipantKind, Place
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_event
from eventplane.errors import EnvelopeError
from eventplane.ingest import OPERATOR, IngestFrame, frame_text
from eventplane.ledger import LedgerRecord
from eventplane.limits import MAX_SQS_ATTRIBUTES
from eventplane.names import DOWNLINK
from eventplane.reasons import REDRIVE, Outcome, Reason
from eventplane.resource_names import FIFO_SUFFIX
from eventplane.router import Router
from eventplane.sqs_binding import DATA_TYPE, REDRIVEN, ROUTE, to_message
from eventplane.topics import device_topic
from operations.letters import Letter
from operations.queues import PlaneQueues
from operations.reading import Message

_TRACE: Final = "AWSTraceHeader"
_COUNT: Final = "Lineage="

_DECISION_DIGITS: Final = 32
"""Hexadecimal digits of a decision in a mark, made from its dead letter's place and id: 128 bits."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One entry for SendMessageBatch to the queue at `url`; `bytes` as SQS counts them.

    `records` are the ledger's of what goes past the routers into an inbox.
    """

    url: str
    entry: Mapping[str, Any]
    records: Sequence[LedgerRecord] = ()

    @property
    def bytes(self) -> int:
        attributes: Mapping[str, Mapping[str, Any]] = self.entry.get("MessageAttributes", {})
        return _size(self.entry["MessageBody"]) + sum(
            _size(name) + sum(_size(part) for part in each.values()) for name, each in attributes.items()
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why a letter cannot go back, and what to do instead."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redriving:
    """An operator's `run` at `now_ms` (Unix milliseconds), in a plane of the `contract` with `queues`."""

    run: str
    now_ms: int
    contract: Contract
    queues: PlaneQueues

    def mark(self, letter: Letter) -> str:
        """Return what `REDRIVEN` says of `letter` sent in this run."""
        return f"{self.run}.{_digest(letter.place, letter.id)[:_DECISION_DIGITS]}"

    def records(self, letter: Letter, channel: str | None, events: Sequence[Envelope]) -> list[LedgerRecord]:
        """Return the ledger's records of `events` that go into `channel`; none if it is no inbox."""
        if channel is None or not is_inbox(self.contract, channel):
            return []
        return [each for event in events for each in self._records(letter, channel, event)]

    def _records(self, letter: Letter, channel: str, event: Envelope) -> Iterator[LedgerRecord]:
        routes = Router(self.contract, Place.CLOUD).route(event)
        routed = next((each.name for each in routes if each.destination == channel), None)
        # What a dead letter says is of its original's route.
        own = letter.route if channel == letter.channel else None
        # A record without a route would count for all of them.
        if route := own or routed:
            yield LedgerRecord(
                decided_at_ms=self.now_ms,
                entered_at_ms=self.now_ms,
                entered_by=channel,
                contract_version=self.contract.version,
                source=event.source,
                id=event.id,
                type=event.type,
                priority=self.contract.priority(event, self.contract.channel(channel)),
                client_id=event.sender.device or None,
                route=route,
                destination=channel,
                outcome=Outcome.DELIVERED,
                reason=REDRIVE,
                attempt=1,
                message_id=f"{self.run}.{letter.id}",
                sender=str(event.sender),
                put_back_by=OPERATOR,
            )


def is_inbox(contract: Contract, address: str | None) -> bool:
    """Return whether the channel `address` is one that a participant reads, and no router."""
    return any(each.address == address for each in cloud_destinations(contract))


def again(message: Message, url: str, mark: str) -> Outgoing:
    """The `message` of a dead-letter queue once more, with its `mark`, for its source queue at `url`."""
    entry: dict[str, Any] = {"MessageBody": message["Body"]}
    system = message["Attributes"]
    attributes = {
        name: {key: value for key, value in each.items() if key in ("DataType", "StringValue", "BinaryValue")}
        for name, each in message.get("MessageAttributes", {}).items()
    }
    if len({*attributes, REDRIVEN}) > MAX_SQS_ATTRIBUTES:
        attributes.popitem()  # a hint
    attributes[REDRIVEN] = {"DataType": DATA_TYPE, "StringValue": mark}
    entry["MessageAttributes"] = attributes
    # Without the count of AWS Lambda's recursive loop detection, which would end the chain once more.
    parts = (each for each in system.get(_TRACE, "").split(";") if not each.startswith(_COUNT))
    if trace := ";".join(parts):
        entry["MessageSystemAttributes"] = {_TRACE: {"DataType": DATA_TYPE, "StringValue": trace}}
    if group := system.get("MessageGroupId"):
        entry["MessageGroupId"] = group
    if url.endswith(FIFO_SUFFIX):
        # With an id of the last five minutes SQS would accept it and drop it, and the ledger would say
        # `delivered`. The second try of another run is dropped by the reader, which knows the decision.
        entry["MessageDeduplicationId"] = mark
    return Outgoing(url, entry)


def original(letter: Letter, redriving: Redriving) -> Outgoing | Skipped:
    """The original that the dead-letter event `letter` keeps, for the queue of the channel it came over.

    An event of a device is accepted anew.
    """
    queues, contract = redriving.queues, redriving.contract
    if problem := _foreign(letter, contract) or _incomplete(letter):
        return Skipped(problem)
    if letter.channel == contract.device.outbox.address and letter.sender:
        url = queues.ingest_url
        body = _frame(letter.original, letter.sender.device, redriving.now_ms)
    else:
        url = queues.channel_urls.get(letter.channel or "")
        body = letter.original.decode("utf-8", "replace")
    if url is None:
        return Skipped(f"channel {letter.channel} has no queue here; have it sent again, with another id")
    entry: dict[str, Any] = {"MessageBody": body}
    hints = {REDRIVEN: redriving.mark(letter)}
    if url.endswith(FIFO_SUFFIX):
        entry |= {"MessageGroupId": _group(body), "MessageDeduplicationId": hints[REDRIVEN]}
    if letter.route and letter.route.isprintable():  # SQS refuses other characters
        hints[ROUTE] = letter.route
    entry["MessageAttributes"] = {
        name: {"DataType": DATA_TYPE, "StringValue": value} for name, value in hints.items()
    }
    return Outgoing(url, entry, redriving.records(letter, letter.channel, letter.events[-1:]))


def _frame(original: bytes, device: str, now_ms: int) -> str:
    return frame_text(IngestFrame(original, device_topic(device, "outbox"), device, OPERATOR, now_ms))


def _foreign(letter: Letter, contract: Contract) -> str | None:
    """Why the original is not its true sender's to send over the letter's channel."""
    author, sender, channel = letter.written_by, letter.sender, letter.channel or ""
    # The client id in it need not come from IoT Core.
    if letter.reason == Reason.BAD_FRAME:
        return "nobody knows who sent what is no frame; end the cause, and have it sent again"
    if author is None or sender is None:
        return "nobody knows who sent the original; have it sent again"
    uplink = contract.device.outbox.address
    if sender.device and (author.device or author == THE_PLANE):
        if channel == uplink:
            return None
        return _on_device(channel, contract) or _not_over(author, sender, channel, uplink)
    if author == THE_PLANE:
        participant = contract.participants.get(sender.service)
        outbox = participant.outbox.address if participant else "no channel"
        return None if channel == outbox else _not_over(author, sender, channel, outbox)
    # A service speaks for what it received and what it sends, and the downlink for the way to devices.
    own = (
        {each.address for each in contract.participants[author.service].channels}
        if (author.service in contract.participants)
        else set()
    )
    own |= {contract.device.inbox.address} if author.service == DOWNLINK else set()
    return None if channel in own else _not_over(author, author, channel, ", ".join(sorted(own)) or "nothing")


def _not_over(author: Sender, sender: Sender, channel: str, own: str) -> str:
    return (
        f"{author} wrote this letter of {sender}, whose channel is {own}, not {channel:.200}; "
        "find out why, it may be forged"
    )


def _incomplete(letter: Letter) -> str | None:
    if letter.original_bytes is None:
        return "the archive has no original of what services in the cloud send; redrive its letter, --letters"
    if not letter.is_whole:
        return f"the letter has {len(letter.original)} of {letter.original_bytes} bytes; have it sent again"
    try:
        parse_event(letter.original)
    except EnvelopeError as error:
        return f"it would be refused again ({error}); correct the sender, which sends it anew"
    return None


def _on_device(channel: str, contract: Contract) -> str | None:
    services = contract.of_kind(ParticipantKind.DEVICE_SERVICE)
    if channel in {each.address for service in services for each in (service.inbox, service.outbox)}:
        return (
            f"{channel} is on the device, where the cloud cannot put it; correct the sender, which sends anew"
        )
    return None


def _group(body: str) -> str:
    try:
        return to_message(parse_event(body)).group
    except EnvelopeError:
        return _digest(body)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _size(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
