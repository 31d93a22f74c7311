"""The telemetry of a client: none, unless its program asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from eventplane.envelope import Envelope
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
    """Tells nobody."""

    @contextmanager
    def putting(self, participant: str, event: Envelope) -> Iterator[Envelope]:  # noqa: ARG002 (the others need it)
        yield event

    def begin(self, participant: str, event: Envelope, message: Message) -> Handling:  # noqa: ARG002
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
