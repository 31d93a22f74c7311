"""The port of a router's senders: what a protocol implements so that routers can write to its channels.

docs/how-to/protocols.md says how one is added. A sender runs in the router's function, used by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol


class OutgoingMessage(Protocol):
    """A message to send: the event in JSON format as `body`, and `hints`, which repeat parts of it.

    `bytes` is the size of both as SQS counts it. Messages of one `group` are in order; those with one
    `deduplication` are copies of one event.
    """

    @property
    def body(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def hints(self) -> Mapping[str, str]: ...
    @property
    def group(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def deduplication(self) -> str: ...


class Acceptance(Enum):
    """The result of a message: the destination has it, it can be sent again, or it will never be taken."""

    TAKEN = "taken"
    AGAIN = "again"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Answer:
    """The `acceptance` of one message; `detail` says why, in the destination's words."""

    acceptance: Acceptance
    detail: str = ""


TAKEN: Final = Answer(Acceptance.TAKEN)


class DestinationSender(Protocol):
    """Sends to the destinations of one protocol."""

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Send `batch`, at most 10 messages and 1 MiB, to `url`; return an answer for each, in order.

        `TAKEN` promises that the destination has stored the message: the router then acknowledges its input.
        Does not raise for what the destination or the network refuse, and returns within 6 seconds; while a
        destination is down it says so without waiting each time, since others wait for their turn.
        """
