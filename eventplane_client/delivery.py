"""One event in a reader's hands, and the telemetry that is told of it: none, unless a program asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from eventplane.envelope import Envelope
from eventplane.ordering import Stream
from eventplane.reasons import Outcome
from eventplane_client.ports import Message


class Handling(Protocol):
    """One event in a program's hands."""

    def active(self) -> AbstractContextManager[None]:
        """Record what is sent within as a consequence of the event."""

    def end(self, error: BaseException | str | None) -> None:
        """It is handled, or was given back with an `error`."""


class Telemetry(Protocol):
    """Is told what a client does. Its methods never raise by themselves."""

    def putting(self, participant: str, event: Envelope) -> AbstractContextManager[Envelope]:
        """Around the sending of an event; gives the event as it shall be sent."""

    def begin(self, participant: str, event: Envelope, message: Message) -> Handling:
        """`event` of the inbox of `participant` is handed out."""

    def failed(self, participant: str, error: BaseException | str, *, is_last: bool) -> None:
        """An attempt at an event of the inbox of `participant` failed; `is_last`: it is given up."""

    def expired(self, participant: str, event: Envelope) -> None:
        """`event` expired in the inbox of `participant`, and was not handed out."""


class NoTelemetry:
    """Telemetry that does nothing."""

    @contextmanager
    def putting(self, participant: str, event: Envelope) -> Iterator[Envelope]:  # noqa: ARG002 (the others need it)
        yield event

    def begin(self, participant: str, event: Envelope, message: Message) -> Handling:  # noqa: ARG002 (the others need it)
        return _NO_HANDLING

    def failed(self, participant: str, error: BaseException | str, *, is_last: bool) -> None:
        pass

    def expired(self, participant: str, event: Envelope) -> None:
        pass


class _NoHandling:
    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def end(self, error: BaseException | str | None) -> None:
        pass


_NO_HANDLING = _NoHandling()


@dataclass(eq=False, slots=True)
class Delivery:
    """`event` as `message` brought it; the filter knows it by `key`, its inbox's order by its `position`.

    It came at `received_s`, by the monotonic clock. `is_claimed` by this reader; `is_acknowledged` to the
    transport before it is handled (`at_most_once`); `is_handled` once the filter was asked to record that,
    even if it failed to; `is_settled` once it is handled or given back, with an `outcome` and its `reason`;
    `handling` tells of it while it is handed out.
    """

    event: Envelope
    message: Message
    key: bytes
    position: tuple[Stream, int] | None = None
    received_s: float = 0.0
    is_claimed: bool = False
    is_acknowledged: bool = False
    is_handled: bool = False
    is_settled: bool = False
    outcome: Outcome = Outcome.DELIVERED
    reason: str | None = None
    handling: Handling | None = None

    @property
    def rank(self) -> int:
        """The rank of its priority, by which its reader hands it out; 0 where it has no position."""
        return self.position[0].rank if self.position else 0

    def told(self, error: BaseException | str | None = None) -> None:
        """Its handling is over, if it was in anybody's hands; at the first call only."""
        handling, self.handling = self.handling, None
        if handling:
            handling.end(error)
