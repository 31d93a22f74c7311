"""The ports of a backend: a transport that carries events, and a filter that knows which were handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Protocol

from eventplane.device_reports import key_digest
from eventplane.envelope import Envelope
from eventplane.ordering import Stream
from eventplane.retries import RetrySchedule
from eventplane.sqs_binding import redrive_in

if TYPE_CHECKING:
    from eventplane_client.delivery import Delivery


class Mode(StrEnum):
    """The number of times that an event comes out of an inbox, whatever crashes."""

    EXACTLY_ONCE = "exactly_once"
    """Once; what was in hand at a crash is in doubt, and its program decides."""
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One delivery: its `body`, its `attempt` from 1, and the transport's own `handle` of it.

    Messages of one `group` keep their order (None: no order). `age_s` is the seconds since its first delivery
    (None: unknown); `retries` the schedule that its router gave it. A queue in the cloud says when it was
    `sent_at_ms` and first `received_at_ms`, and over which `route` it came; now it was received at
    `present_ms` or later by the queue's clock (each in Unix milliseconds). `waited_s` is
    for how long it has waited for its order elsewhere, seconds. `redrive` is the mark with which an operator
    sent it back; None for what a router sent. The mark `is_shared` if it is not for this event alone.
    `receipts` is of how many percent of the events its router, by the `contract` of that version, wants a
    receipt. `id` is the transport's own name of the message, '' where it has none.
    `hidden_s` is how long it is hidden unless it is extended, seconds; None for `Transport.visibility_s`.
    """

    body: bytes
    attempt: int
    handle: object
    group: str | None = None
    sent_at_ms: int | None = None
    received_at_ms: int | None = None
    present_ms: int | None = None
    route: str | None = None
    waited_s: float = 0.0
    redrive: str | None = None
    is_shared: bool = False
    hidden_s: float | None = None
    age_s: float | None = None
    retries: RetrySchedule | None = None
    receipts: int = 0
    contract: str = ""
    id: str = ""


class ReceiptPort(Protocol):
    """Takes the receipts of settled events; the transport sends them before it acknowledges."""

    def add(self, settled: Delivery, /) -> None:
        """Collect a receipt of an event, if its router asked for one."""

    def withdraw(self, kept: Delivery, /) -> None:
        """Forget the receipt of an event that was not settled after all, unless it was sent."""

    def send(self) -> bool:
        """Send what is collected; False if that failed, and the events have to come again."""


class Transport(Protocol):
    """Carries one participant's events. Methods raise the client's errors."""

    @property
    def visibility_s(self) -> float | None:
        """Seconds after which a delivery comes again unless it is extended; None: it does not."""

    @property
    def max_receives(self) -> int:
        """Deliveries after which the transport may take the event away, whatever its schedule is."""

    @property
    def keeps_refused(self) -> bool:
        """True if `acknowledge` with `refused` makes the sender's side keep the event as a dead letter."""

    @property
    def receipts(self) -> ReceiptPort | None:
        """Collects receipts of what is settled, and sends them; None where the archive gets none."""

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        """Send; on return it is kept for good, or with `durable` false only under way."""

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        """Up to `most` messages; waits up to `timeout_s` seconds for the first."""

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        """They are done with and do not come again, as far as the transport can tell.

        `refused` is why they were not handed out, for a transport that `keeps_refused`. Return those of them
        that will come again, since the transport could not be told.
        """

    def release(self, message: Message, wait_s: float) -> None:
        """Let it come again in `wait_s` seconds."""

    def extend(self, messages: Sequence[Message]) -> None:
        """They are still being worked on."""

    def close(self) -> None:
        """End at once."""


Lease = Callable[[], float]
"""Returns the seconds from now for which a claim is valid unless it is renewed; called with each claim."""


class Verdict(Enum):
    """The filter's knowledge of an event that is about to be handed out."""

    NEW = "new"
    """Nobody had it; it is claimed now."""
    MINE = "mine"
    """This reader has it in hand."""
    BUSY = "busy"
    """Another reader has it in hand, and its lease has not ended."""
    DOUBT = "doubt"
    """A reader whose lease has ended had it in hand."""
    DONE = "done"


class MessageFilter(Protocol):
    """Remembers which events were handed out and which are done, for good, and how far each stream has come.

    Events are known by `digest`.
    """

    @property
    def is_lasting(self) -> bool:
        """True if what is remembered outlives this process."""

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        """Mark `done` as done and claim each of `keys` that is new; one durable step, as far as there is one.

        `force` claims also what is in doubt. Raises `StateError`; then nothing is claimed.
        """

    def release(self, keys: Sequence[bytes]) -> None:
        """They may be handed out again."""

    def renew(self, keys: Sequence[bytes]) -> None:
        """This reader lives and has `keys` in hand. Another thread may call it."""

    def tries(self, key: bytes) -> int:
        """Return how often it was claimed and neither done nor released."""

    def epoch(self, source: str, epoch: str) -> str | None:
        """Remember the epoch of the device behind `source`; return the one before, if that was another.

        `source` is any text that names a sender and its source.
        """

    def position(self, stream: Stream) -> int | None:
        """Return the first number of `stream` that is not done, None where none was stored."""

    def advance(self, stream: Stream, position: int) -> None:
        """Remember that all before `position` is done, for good; a lower one changes nothing."""

    def close(self) -> None:
        """Let go of the state."""


def digest(event: Envelope, redrive: str | None = None) -> bytes:
    """Return 16 bytes that represent an event's identity: sender, `source` and `id`.

    The decision in `redrive` makes it another: what was done or given up before does not count against it.
    """
    sender, source, id = event.key
    return key_digest((sender, source, id if redrive is None else f"{id}\n{redrive_in(redrive)}"))
