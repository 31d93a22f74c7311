"""Events as SQS messages: our own binding, as CloudEvents has none for SQS. docs/bindings.md describes it.

The body is the event in JSON format and alone counts. Message attributes are hints, for a consumer that wants
to choose without parsing; nothing is read back from them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eventplane.envelope import Envelope
from eventplane.errors import EventPlaneError
from eventplane.limits import MAX_SQS_ATTRIBUTES

DATA_TYPE: Final = "String"
"""The type of every hint."""

_IF_GIVEN: Final = ("time", "replayedtime")

# SQS accepts the characters of XML 1.0. Strict JSON has already kept all others out, but for these two.
_NOT_XML: Final = re.compile("[\ufffe\uffff]")


class HintsError(EventPlaneError):
    """SQS would refuse a message with these `hints`."""

    def __init__(self, reason: str, hints: Mapping[str, str]) -> None:
        super().__init__(f"{reason}; leave some out, the body has everything: {', '.join(hints)}")
        self.hints = dict(hints)


@dataclass(frozen=True, slots=True)
class SqsMessage:
    """What a message carries: the `event`'s exact text as `body`, and `hints`; `bytes` as SQS counts them."""

    event: Envelope
    hints: Mapping[str, str] = field(hash=False)
    body: str = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        # These two can only stand inside JSON strings, where an escape means the same.
        body = _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", self.event.json)
        hints = sum(len(name) + len(DATA_TYPE) + len(value.encode()) for name, value in self.hints.items())
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "bytes", len(body.encode()) + hints)

    @property
    def group(self) -> str:
        """The message group in a FIFO queue: order is kept by sender and `partitionkey`, or else `source`.

        Hashed, because SQS allows 128 characters of its own choice; equal keys stay equal.
        """
        return _digest(f"{self.event.sender}\n{self.event.attributes.get('partitionkey', self.event.source)}")

    @property
    def deduplication(self) -> str:
        """What a FIFO queue recognises a copy by: the event's sender, `source` and `id`."""
        return _digest("\n".join(self.event.key))


def to_message(event: Envelope, hints: Mapping[str, str] | None = None) -> SqsMessage:
    """The message of `event`, with `hints` beside those that every message has. Raises `HintsError`."""
    every = {"ce_id": event.id, "ce_source": event.source, "ce_type": event.type}
    every |= {f"ce_{name}": str(event.attributes[name]) for name in _IF_GIVEN if name in event.attributes}
    every |= hints or {}
    if len(every) > MAX_SQS_ATTRIBUTES:
        raise HintsError(f"{len(every)} hints, SQS takes {MAX_SQS_ATTRIBUTES}", every)
    if not all(every.values()):
        raise HintsError("a hint is empty, which SQS refuses", every)
    return SqsMessage(event, every)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
