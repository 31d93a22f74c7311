"""Requests of a participant: an event goes out, and the replies of all who handle it come back."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from eventplane.conversation.messages import Replier, ReplyError, read_reply, write_request
from eventplane.conversation.open_requests import (
    NO_ANNOUNCEMENTS,
    Announcements,
    Circuit,
    OpenRequests,
    PeerListener,
    Replies,
)
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.guarantee import is_expired
from eventplane.names import CORRELATION_ID
from eventplane.values import timestamp
from eventplane_client.errors import (
    ClientError,
    ClosedError,
    NoRoomError,
    NotConfirmedError,
    RequestDroppedError,
    RequestTimeoutError,
    UnavailableError,
)
from eventplane_client.ports import Message, Transport
from eventplane_client.system import SYSTEM, System, Thread

_log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Between two checks whether those a request waits for still handle the event, seconds."""

_TEMPORARY: Final = (UnavailableError, NoRoomError, NotConfirmedError)
"""The errors that may end before a request's timeout."""

_OTHERS_S: Final = 1.0
"""After which a reply that another process waits for is visible to that again, seconds."""

_POLL_S: Final = 2.0
_RETRY_S: Final = 1.0
"""After which a table or a queue that does not answer is asked again, seconds. boto3 has its own attempts."""

_MOST: Final = 10
_REMEMBERED: Final = 1_000
_ID_BYTES: Final = 16

FindHandlers = Callable[[Envelope], frozenset[Replier]]

_Result = TypeVar("_Result")


class Expected(NamedTuple):
    """The handlers of a request, the names of their last announcements; the `device` if all are on one."""

    handlers: Collection[Replier]
    announced: Announcements = NO_ANNOUNCEMENTS
    device: str | None = None


Find = Callable[[Envelope, float], Expected | None]
"""Returns who handles a request by now, None if that is not known within the given seconds."""

Send = Callable[[Envelope, float], None]
"""Sends a request within the given seconds, or raises a client error."""


class Asker:
    """Sends the requests of `participant` and collects their replies, whatever carries them. Thread-safe.

    `changed` guards its state. `on_change` is called when the circuit of a peer changes, and must not ask.
    """

    def __init__(self, participant: str, on_change: PeerListener, system: System) -> None:
        self.changed = system.condition()
        self._system = system
        self.closed = False
        self._participant = participant
        self._requests = OpenRequests(on_change)
        self._ids: set[str] = set()
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)

    def peers(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked."""
        with self.changed:
            return self._requests.peers()

    @property
    def ignored_replies(self) -> int:
        """The number of replies ignored: malformed, of one that was not asked, or in another's name."""
        with self.changed:
            return self._requests.ignored

    def ask(
        self,
        event: Envelope,
        timeout_s: float,
        send: Send,
        find: Find,
        look: Find,
        *,
        durable: bool,
        expires: bool,
    ) -> Replies:
        """Send `event` as a request to those that `find` returns, and return their replies.

        `look` is asked again while replies are missing. See `Client.request` for the rest.
        """
        give_up = self._system.monotonic() + timeout_s
        id = self._system.random_bytes(_ID_BYTES).hex()
        now = self._system.now()
        deadline = timestamp(now + timedelta(seconds=timeout_s)) if expires else None

        def write(device: str | None) -> Envelope:
            return write_request(
                event,
                asker=self._participant,
                device=device,
                correlation_id=id,
                deadline=deadline,
                now=timestamp(now),
                durable=durable,
            )

        request = write(None)
        found = find(request, timeout_s)
        if found is None:
            if durable:
                raise RequestTimeoutError(self._participant, timeout_s, {}, None)
            raise RequestDroppedError(self._participant, "nobody answered who handles the event")
        with self.changed:
            if self.closed:
                raise ClosedError(self._participant)
            self._requests.open(id, found.handlers, found.announced)
            self._ids.add(id)
        try:
            send(
                write(found.device) if found.device else request, max(0.0, give_up - self._system.monotonic())
            )
            answered = self._wait(id, give_up, lambda left: look(request, left))
        except BaseException:
            self._end(id, timed_out=False)
            raise
        replies, missing = self._end(id, timed_out=not answered)
        if missing:
            raise RequestTimeoutError(self._participant, timeout_s, replies, missing)
        return replies

    def take(self, payload: bytes) -> tuple[str, Envelope] | None:
        """Take a reply; return the id of its request and the event, None if it is malformed."""
        try:
            event = parse_event(payload)
            id, reply = read_reply(event)
        except (EnvelopeError, ReplyError) as error:
            _log.warning("%s: ignored a reply: %s", self._participant, error)
            with self.changed:
                self._requests.ignored += 1
            return None
        with self.changed:
            # One to another process of the participant is a sign of life as well.
            counts = self._requests.replied(id, reply)
            self.changed.notify_all()
        if not counts:
            _log.warning("%s: ignored a reply: %s was not asked", self._participant, reply.replier)
        return id, event

    def is_own(self, id: str) -> bool:
        """Return whether this process sent the request `id`, open or ended not long ago."""
        with self.changed:
            return id in self._ids

    def _end(self, id: str, *, timed_out: bool) -> tuple[Replies, list[str]]:
        with self.changed:
            if len(self._ended) == _REMEMBERED:
                self._ids.discard(self._ended[0])
            self._ended.append(id)
            return self._requests.end(id, timed_out=timed_out)

    def close(self) -> None:
        """Wake the threads that wait."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _wait(self, id: str, give_up: float, look: Callable[[float], Expected | None]) -> bool:
        """Wait until `give_up`; return whether every reply came."""
        while True:
            left = give_up - self._system.monotonic()
            with self.changed:
                self.changed.wait_for(
                    lambda: self.closed or self._requests.is_answered(id), max(0.0, min(left, LOOK_AGAIN_S))
                )
                if self._requests.is_answered(id):
                    return True
                if self.closed:
                    raise ClosedError(self._participant)
            left = give_up - self._system.monotonic()
            if left <= 0:
                return False
            if found := look(min(left, LOOK_AGAIN_S)):
                with self.changed:
                    self._requests.update_handlers(id, found.handlers, found.announced)


class QueueAsker(Asker):
    """Asks over `transport`; `replies` receives the replies, from a queue that its processes share.

    `handlers` returns who handles an event, by what is in force now; it raises the client's errors and those
    of `eventplane.conversation`. `announced` names the last announcements of participants. A thread polls
    while requests are open.
    """

    def __init__(
        self,
        participant: str,
        transport: Transport,
        replies: Transport,
        handlers: FindHandlers,
        on_change: PeerListener,
        *,
        announced: Callable[[], Announcements] = lambda: NO_ANNOUNCEMENTS,
        system: System = SYSTEM,
    ) -> None:
        super().__init__(participant, on_change, system)
        self._transport = transport
        self._replies = replies
        self._handlers = handlers
        self._announced = announced
        self._poller: Thread | None = None

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        """Return the replies, or raise what kept the request from being sent until its timeout."""
        try:
            return self.ask(
                event, timeout_s, self._send, self._find, self._look, durable=durable, expires=expires
            )
        except _TEMPORARY as error:
            if durable:
                raise
            raise RequestDroppedError(self._participant, str(error)) from error

    def close(self) -> None:
        super().close()
        with self.changed:
            poller = self._poller
        if poller is not None:
            poller.join()
        self._replies.close()

    def _send(self, request: Envelope, timeout_s: float) -> None:
        self._start_poller()
        # The event itself says whether it is durable; one that could not be sent at all is tried again.
        self._try_until(timeout_s, lambda left: self._transport.put(request, left, durable=True))

    def _find(self, request: Envelope, timeout_s: float) -> Expected:
        handlers = self._try_until(timeout_s, lambda _: self._handlers(request))
        return Expected(sorted(handlers, key=str), self._announced())

    def _look(self, request: Envelope, _timeout_s: float) -> Expected | None:
        try:
            return Expected(sorted(self._handlers(request), key=str), self._announced())
        except UnavailableError as error:
            _log.warning("%s: it is not known now who handles the event: %s", self._participant, error)
            return None

    def _start_poller(self) -> None:
        with self.changed:
            if self._poller is None and not self.closed:
                name = f"{self._participant}-replies"
                self._poller = self._system.start_thread(name, self._poll)

    def _try_until(self, timeout_s: float, call: Callable[[float], _Result]) -> _Result:
        """Return what `call`, which gets the seconds left, returns.

        After a temporary error it is called again until the timeout, at least once in all.
        """
        give_up = self._system.monotonic() + timeout_s
        while True:
            left = max(0.0, give_up - self._system.monotonic())
            try:
                return call(left)
            except _TEMPORARY as error:
                if self._system.monotonic() >= give_up:
                    raise
                _log.info("%s: a request waits: %s", self._participant, error)
            with self.changed:
                if self.changed.wait_for(lambda: self.closed, min(left, _RETRY_S)):
                    raise ClosedError(self._participant)

    def _poll(self) -> None:
        """Read replies while requests are open."""
        try:
            while self._is_awaited():
                self._read()
        except BaseException:
            with self.changed:
                self._poller = None  # the next request starts another
            raise

    def _is_awaited(self) -> bool:
        with self.changed:
            if not self.closed and len(self._requests):
                return True
            self._poller = None  # in one step with the check: a request that opens now starts a thread
            return False

    def _read(self) -> None:
        try:
            for message in self._replies.receive(_MOST, _POLL_S):
                self._take_message(message)
        except ClientError as error:
            _log.warning("%s: replies cannot be read now: %s", self._participant, error)
            with self.changed:
                self.changed.wait_for(lambda: self.closed, _RETRY_S)

    def _take_message(self, message: Message) -> None:
        reply = self.take(message.body)
        if reply is None:
            self._replies.acknowledge([message])
            return
        id, event = reply
        if self.is_own(id) or is_expired(event, self._system.now_ms()):
            self._replies.acknowledge([message])
        else:
            _log.debug("%s: %s is of another process: %s", self._participant, CORRELATION_ID, id)
            self._replies.release(message, _OTHERS_S)
