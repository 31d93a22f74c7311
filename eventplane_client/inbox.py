"""The inbox as a program sees it: get, receive, iterate, handle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Final, Self, Unpack

from eventplane.envelope import Envelope
from eventplane_client.delivery import Delivery
from eventplane_client.errors import (
    AlreadySettledError,
    ClientError,
    ClosedError,
    NothingThereError,
    NotRegisteredError,
    UnfinishedHandlerError,
)
from eventplane_client.ports import MessageFilter, Transport
from eventplane_client.reader import LONG_POLL_S, Reader, ReaderOptions
from eventplane_client.settings import check_arguments
from eventplane_client.system import SYSTEM

_UNFINISHED: Final = (Awaitable, Generator, AsyncGenerator)
"""What a handler returns that has not done its work, beside futures: of most of them nothing has run."""


class Received:
    """One `event` in hand, and which `attempt` it is, from 1. Settle it once, by `ack` or `nack`.

    `sender` is who sent it, as the plane authenticated it.
    """

    def __init__(self, inbox: Inbox, delivery: Delivery) -> None:
        self.event = delivery.event
        self.sender = delivery.event.sender
        self.attempt = delivery.message.attempt
        self._inbox = inbox
        self._delivery = delivery

    def ack(self, answer: object = None) -> None:
        """It is handled; on return that is remembered. If somebody waits for a reply, it is the `answer`.

        Raises `AlreadySettledError`, `StateError`.
        """
        self._inbox.settle(self._delivery, answer)

    def traced(self) -> AbstractContextManager[None]:
        """Put what is sent within into the trace of this event, where the client records traces."""
        handling = self._delivery.handling
        return handling.active() if handling else nullcontext()

    def nack(self, error: BaseException | str = "nack") -> None:
        """It is not handled: it comes again later, or becomes a dead letter when its time is over.

        After an `UnhandleableError` it is a dead letter at once, for its reason. Else the reason is the
        exception's class, or `error` itself. Raises `AlreadySettledError`,
        `StateError`.
        """
        self._inbox.give_back(self._delivery, error)


class Inbox:
    """The reader of one participant; use it in a `with` block, and by one thread. Others may `close` it.

    `get` and an iteration hand out an event and count the one before as handled; the end of the block counts
    the last one as handled, an exception as not. `receive` leaves both to its caller.

    `is_registered` says whether anything leads here: it is asked when no event came.

    `in_force_from` is from when on the subscription with which it was opened is in force, None without one:
    every event put later that passes its filter comes, one put before may come.
    """

    def __init__(
        self,
        participant: str,
        transport: Transport,
        filter: MessageFilter | None,
        *,
        is_registered: Callable[[], bool] = lambda: True,
        in_force_from: datetime | None = None,
        **reading: Unpack[ReaderOptions],
    ) -> None:
        self.participant = participant
        self._is_registered = is_registered
        self.in_force_from = in_force_from
        self._reader = Reader(participant, transport, filter, **reading)
        self._got: list[Delivery] = []
        self._received: list[Delivery] = []
        # Held while the reader works. A thread that closes does not wait for it: who leaves it last, ends it.
        system = reading.get("system", SYSTEM)
        self._lock = system.lock()
        self._ended = system.event()
        self._error: BaseException | None = None
        self._closed = False
        self._stopping = False

    def get(self, timeout_s: float = LONG_POLL_S) -> Envelope:
        """The next event; the one before is handled.

        Raises `NothingThereError` after `timeout_s` seconds, or `NotRegisteredError` where nothing leads to
        this inbox; `StateError`, `UnavailableError`, `ClosedError`; `ClientSettingsError` for an argument
        that is out of its range.
        """
        return self.get_batch(1, timeout_s)[0]

    def get_batch(self, most: int, timeout_s: float = LONG_POLL_S) -> list[Envelope]:
        """Up to `most` events, at least one; those before are handled. Raises what `get` raises."""
        check_arguments(most=most, timeout_s=timeout_s)
        with self._reading():
            found = self._reader.next(most, timeout_s, self._handled())
            self._got = []
            if self._closed:
                # By another thread: the program does not get them, so they come again.
                self._received += found
                raise ClosedError(self.participant)
            self._got = found
        if not found:
            raise self._nothing_there(timeout_s)
        return [each.event for each in found]

    def receive(self, timeout_s: float = LONG_POLL_S) -> Received:
        """The next event, to be settled by hand. Raises what `get` raises."""
        return self.receive_batch(1, timeout_s)[0]

    def receive_batch(self, most: int, timeout_s: float = LONG_POLL_S) -> list[Received]:
        """Up to `most` of them, at least one. Raises what `get` raises."""
        check_arguments(most=most, timeout_s=timeout_s)
        with self._reading():
            found = self._reader.next(most, timeout_s)
            self._received = [each for each in self._received if not each.is_settled] + found
        self._check_open()
        if not found:
            raise self._nothing_there(timeout_s)
        return [Received(self, each) for each in found]

    def __iter__(self) -> Iterator[Envelope]:
        """Events, until the inbox is closed. Raises what `get` raises, but waits for ever."""
        while not self._closed:
            try:
                event = self.get()
            except NothingThereError:
                continue
            except ClosedError:  # by another thread
                return
            yield event

    def handle(self, handler: Callable[[Envelope], object], *, idle_s: float | None = None) -> None:
        """Call `handler` with each event. When it raises, the event comes again or is a dead letter at last.

        An `UnhandleableError` makes a dead letter of it at once.

        What it returns is the answer to whoever waits for a reply; one that failed for good is told as well.
        Raises `UnfinishedHandlerError` where that is a coroutine, a generator or a future: the event comes
        again.
        Ends when the inbox is closed, after `stop`, or when nothing came for `idle_s` seconds.
        """
        while not (self._closed or self._stopping):
            try:
                received = self.receive(LONG_POLL_S if idle_s is None else idle_s)
            except NothingThereError:
                if idle_s is not None:
                    return
                continue
            except ClosedError:  # by another thread
                return
            try:
                self._handle_one(received, handler)
            except AlreadySettledError:
                if not self._closed:  # else closed by another thread: the event comes again
                    raise

    def _handle_one(self, received: Received, handler: Callable[[Envelope], object]) -> None:
        try:
            with received.traced():
                answer = handler(received.event)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the reason)
            received.nack(error)
        else:
            if isinstance(answer, _UNFINISHED) or hasattr(answer, "add_done_callback"):
                if isinstance(answer, Coroutine | Generator):
                    answer.close()
                raise UnfinishedHandlerError(self.participant, type(answer).__name__)
            received.ack(answer)

    def stop(self) -> None:
        """Let `handle` end after the event under way; also from a signal handler."""
        self._stopping = True

    def settle(self, delivery: Delivery, answer: object = None) -> None:
        """See `Received.ack`."""
        with self._alone():
            self._reader.reply_to(delivery, answer)
            self._reader.settle([delivery])

    def give_back(self, delivery: Delivery, error: BaseException | str) -> None:
        """See `Received.nack`."""
        with self._alone():
            self._reader.give_back(delivery, error)

    def close(self, error: BaseException | None = None) -> None:
        """End. What `get` handed out is handled or, with an `error`, is not; what `receive` did, comes again.

        Any thread may close; one that is reading ends then, at the latest with its long poll. Raises
        `StateError`.
        """
        if self._closed:
            return
        self._error = error
        self._closed = True
        self._end()

    def wait_ended(self, timeout_s: float) -> bool:
        """Return whether the thread that reads has left the closed inbox within `timeout_s` seconds."""
        return self._ended.wait(timeout_s)

    def _end(self) -> None:
        """Give back what is in hand, unless a thread is reading, which does it when it leaves."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._ended.is_set():
                self._give_all_back(self._error)
        finally:
            self._ended.set()
            self._lock.release()

    def _give_all_back(self, error: BaseException | None) -> None:
        try:
            got = self._handled() if error is None else _unhandled(self._got)
            if error is None:
                self._reader.settle(got)
            # Who was interrupted, or closed from outside, has not failed.
            is_failure = isinstance(error, Exception) and not isinstance(error, ClosedError)
            for each in got if error is not None else ():
                self._reader.give_back(each, error or "", is_failure=is_failure)
            for each in _unhandled(self._received):
                self._reader.give_back(each, "closed", is_failure=False)
        finally:
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def _handled(self) -> list[Delivery]:
        handled = [each for each in self._got if not each.is_settled]
        for each in handled:
            self._reader.reply_to(each, None)
        return handled

    def _nothing_there(self, timeout_s: float) -> ClientError:
        if self._is_registered():
            return NothingThereError(self.participant, timeout_s)
        problem = "no route and no subscription leads to its inbox"
        return NotRegisteredError(self.participant, problem, "subscribe with a filter, or add a route")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self.participant)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Use the reader alone, and end it if it was closed meanwhile."""
        try:
            with self._lock:
                yield
        finally:
            if self._closed:
                self._end()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """As `_alone`; what fails because another thread closes is a `ClosedError`."""
        with self._alone():
            self._check_open()
            try:
                yield
            except ClientError as error:
                if self._closed and not isinstance(error, ClosedError):
                    raise ClosedError(self.participant) from error
                raise


def _unhandled(deliveries: list[Delivery]) -> list[Delivery]:
    """Return those to give back; the others are done, or in doubt if the filter failed to record it."""
    return [each for each in deliveries if not (each.is_settled or each.is_handled)]
