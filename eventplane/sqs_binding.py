"""Events as SQS messages: our own binding, as CloudEvents has none for SQS (docs/reference/bindings.md).

The body is the event in JSON format and alone counts. In a packed inbox it may be a CloudEvents JSON batch,
plain or in gzip and base64, which its first characters tell apart. Message attributes are hints, for a
consumer that wants to choose without parsing; only `CONTRACT`, `RECEIPTS`, `REDRIVEN`, `RETRIES` and
`ROUTE` are read back.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Protocol

from eventplane import batch
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.limits import MAX_BATCH_BYTES, MAX_PACKED_MESSAGE_BYTES, MAX_SQS_ATTRIBUTES
from eventplane.names import REPLAYED_TIME
from eventplane.reasons import Reason
from eventplane.resource_names import FIFO_SUFFIX

DATA_TYPE: Final = "String"
"""The type of every hint."""

COUNT: Final = "events"
"""The hint on a message with several events: how many they are."""

ROUTE: Final = "route"
"""The hint in which a router names the route."""

CONTRACT: Final = "contract"
"""The hint in which a router names the version of the contract by which it decided."""

RECEIPTS: Final = "receipts"
"""The hint in which a router asks for receipts of so many percent of the events."""

RETRIES: Final = "retries"
"""The hint in which a router tells a reader without the contract when to try again (`eventplane.retries`)."""

REDRIVEN: Final = "redriven"
"""The attribute of a message that an operator sent back: it names the run and, behind a dot, the dead letter.
To readers each dead letter is a new decision: they hand the event out once more."""

_COMPRESSED: Final = "H4sI"
"""The beginning of gzip in base64: its magic, and deflate as the method (RFC 1952)."""

_GZIP: Final = zlib.MAX_WBITS | 16
_LEVEL: Final = 6
_HEADROOM: Final = 0.95
"""When a batch is too large, how much of the proportional share to try next: texts compress unevenly."""

_IF_GIVEN: Final = ("time", REPLAYED_TIME)

REPLAYED_HINT: Final = f"ce_{REPLAYED_TIME}"
"""The hint on a replayed copy: when it was sent again."""

# SQS accepts the characters of XML 1.0. Strict JSON has already kept all others out, but for these two.
_NOT_XML: Final = re.compile("[\ufffe\uffff]")


class HintsError(EventPlaneError):
    """SQS would refuse a message with these `hints`."""

    reason: str
    hints: Mapping[str, str]
    message = "{reason}; leave some out, the body has everything: {names}"

    @property
    def names(self) -> str:
        """The names of the hints."""
        return ", ".join(self.hints)


@dataclass(frozen=True, slots=True)
class SqsMessage:
    """A message: its `body` carries `events`, one or several; `bytes` is its size as SQS counts it."""

    events: tuple[Envelope, ...]
    body: str
    hints: Mapping[str, str] = field(hash=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", len(self.body.encode()) + _hint_bytes(self.hints))

    @property
    def group(self) -> str:
        """The message group in a FIFO queue: order is kept by sender and `partitionkey`, or else `source`.

        Hashed, because SQS allows 128 characters of its own choice; equal keys stay equal.
        """
        (event,) = self.events
        return _digest(f"{event.sender}\n{event.attributes.get('partitionkey', event.source)}")

    @property
    def tenant(self) -> str:
        """The message group in a standard queue: whose events these are, a device's or a cloud service's.

        With it SQS delays only the messages of a sender that floods a queue (fair queues); it orders nothing.
        '' for events of several senders, which SQS counts as one more sender.
        """
        senders = {each.sender.device or each.sender.service for each in self.events}
        return _digest(*senders) if len(senders) == 1 and any(senders) else ""

    @property
    def deduplication(self) -> str:
        """The deduplication id in a FIFO queue: a digest of the event's sender, `source` and `id`.

        A replayed copy has one of its own: within five minutes SQS would accept it and drop it. An event that
        has no room for the mark has the hint alone.
        """
        (event,) = self.events
        replayed = event.attributes.get(REPLAYED_TIME) or self.hints.get(REPLAYED_HINT)
        return _digest("\n".join(event.key if replayed is None else (*event.key, str(replayed))))


def to_message(event: Envelope, hints: Mapping[str, str] | None = None) -> SqsMessage:
    """Return the message of `event`, with `hints` and those that every message has. Raises `HintsError`."""
    every = {"ce_id": event.id, "ce_source": event.source, "ce_type": event.type}
    every |= {f"ce_{name}": str(event.attributes[name]) for name in _IF_GIVEN if name in event.attributes}
    return SqsMessage((event,), _text(event), _checked({**every, **(hints or {})}))


def send_request(queue_url: str, event: Envelope) -> dict[str, Any]:
    """Return the request that sends `event` to the queue at `queue_url`. Raises `HintsError`."""
    message = to_message(event)
    request: dict[str, Any] = {
        "QueueUrl": queue_url,
        "MessageBody": message.body,
        "MessageAttributes": {
            name: {"DataType": DATA_TYPE, "StringValue": value} for name, value in message.hints.items()
        },
    }
    if queue_url.endswith(FIFO_SUFFIX):
        request |= {"MessageGroupId": message.group, "MessageDeduplicationId": message.deduplication}
    return request


def hint_of(message: Mapping[str, Any], name: str) -> str | None:
    """Return the hint `name` of a message as ReceiveMessage returns it; None if it has none."""
    value = message.get("MessageAttributes", {}).get(name, {}).get("StringValue")
    return None if value is None else str(value)


def redrive_in(mark: str) -> str:
    """Return the decision in a `REDRIVEN` mark: the same in each run that sends the same dead letter."""
    return mark.rpartition(".")[2]


def redriven_id(id: str, mark: str | None) -> str:
    """Return the id of a dead letter of a message with this `REDRIVEN` mark; `id` without one.

    With the same id as before, a reader would take it for a copy of the first dead letter.
    """
    return id if mark is None else f"{id}.{redrive_in(mark)}"


def pack(events: Sequence[Envelope], hints: Mapping[str, str], most: int) -> Iterator[SqsMessage]:
    """Put `events` in their order into messages of up to `most` events and MAX_PACKED_MESSAGE_BYTES.

    An event that is too large for company, or the only one, has a message as by `to_message`. Several are a
    JSON batch, compressed where more of them fit like that. Raises `HintsError`.
    """
    texts = [_text(event) for event in events]
    at = 0
    while at < len(events):
        body, count = _first_body(texts[at : at + most], _checked({**hints, COUNT: str(most)}))
        if count == 1:
            yield to_message(events[at], hints)
        else:
            yield SqsMessage(tuple(events[at : at + count]), body, {**hints, COUNT: str(count)})
        at += count


def split(body: str) -> list[str]:
    """Return the texts of the events in a message's `body`: the body itself, or the items of a batch.

    Raises `EnvelopeError` for a batch that cannot be read.
    """
    if body.startswith(_COMPRESSED):
        try:
            payload = base64.b64decode(body, validate=True)
        except ValueError as error:
            raise EnvelopeError(Reason.NOT_BASE64, f"the compressed batch cannot be read: {error}") from error
        return batch.split(batch.inflate(payload, _GZIP))
    if body.startswith("["):
        return batch.split(body.encode("utf-8", "surrogatepass"))
    return [body]


def _first_body(texts: Sequence[str], hints: Mapping[str, str]) -> tuple[str, int]:
    """Return a body with as many of the first `texts` as fit one message, and their number: at least one."""
    room = MAX_PACKED_MESSAGE_BYTES - _hint_bytes(hints)
    sizes = list(accumulate((len(text.encode()) + 1 for text in texts), initial=1))
    plain = bisect_right(sizes, room) - 1
    if plain < len(texts) and plain > 0:
        count = min(len(texts), bisect_right(sizes, MAX_BATCH_BYTES) - 1)
        body = _compressed(texts[:count])
        while len(body) > room and count > plain:
            count = min(count - 1, int(count * room / len(body) * _HEADROOM))
            body = _compressed(texts[:count])
        if count > plain:
            return body, count
    return "[" + ",".join(texts[:plain]) + "]", max(1, plain)


def _compressed(texts: Sequence[str]) -> str:
    deflater = zlib.compressobj(_LEVEL, wbits=_GZIP)
    text = "[" + ",".join(texts) + "]"
    return base64.b64encode(deflater.compress(text.encode()) + deflater.flush()).decode()


def _text(event: Envelope) -> str:
    # These two can only stand inside JSON strings, where an escape means the same.
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", event.json)


def _hint_bytes(hints: Mapping[str, str]) -> int:
    return sum(len(name) + len(DATA_TYPE) + len(value.encode()) for name, value in hints.items())


def _checked(hints: Mapping[str, str]) -> Mapping[str, str]:
    if len(hints) > MAX_SQS_ATTRIBUTES:
        raise HintsError(f"{len(hints)} hints, SQS takes {MAX_SQS_ATTRIBUTES}", hints)
    if not all(hints.values()):
        raise HintsError("a hint is empty, which SQS refuses", hints)
    return hints


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


# The clock of a queue, for decisions that depend on the present.

CLOCK_TOLERANCE_MS: Final = 10_000
"""Difference between the two clocks that is ignored, milliseconds. Lambda gives a function 10 s to start
(Lambda quotas), and its first batch waits meanwhile."""


class ReceivedMessage(Protocol):
    """A message: how often it was received, and when first by the queue's clock (Unix milliseconds)."""

    @property
    def attempt(self) -> int: ...
    @property
    def received_at_ms(self) -> int | None: ...


class QueueClock:
    """Gives the present in Unix milliseconds by `clock`, corrected where the source queue's clock disagrees.

    A message that is received for the first time was received at most now, by the queue's clock. What this
    machine's clock says beyond that is either its error or the time that the message waited for the function:
    taken together they give a present that is never late, so that nothing expires before its time.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._most_ahead_ms: int | None = None

    @property
    def skew_ms(self) -> int:
        """The lead of this machine's clock, milliseconds; negative: behind, 0: within the tolerance."""
        ahead_ms = self._most_ahead_ms or 0
        return ahead_ms if abs(ahead_ms) > CLOCK_TOLERANCE_MS else 0

    def observe(self, messages: Iterable[ReceivedMessage]) -> None:
        """Compare the clocks by those of `messages` that are received for the first time."""
        received = [
            message.received_at_ms
            for message in messages
            if message.attempt == 1 and message.received_at_ms is not None
        ]
        if received:
            self._most_ahead_ms = self._clock() - max(received)

    def at_least(self, message: ReceivedMessage) -> int:
        """Return a time, Unix milliseconds, that is not later than the present by the queue's clock.

        Expiry goes by it. This machine's clock counts only for a message that is received again, and once a
        first receive has shown how far it may be ahead.
        """
        received_ms = message.received_at_ms
        if received_ms is None:
            return self()
        if message.attempt == 1 or self._most_ahead_ms is None:
            return received_ms
        return max(received_ms, self._clock() - self._most_ahead_ms)

    def __call__(self) -> int:
        return self._clock() - self.skew_ms
