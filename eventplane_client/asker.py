"""Requests of a participant whose replies come into a queue that its processes share."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeVar

from eventplane.conversation.attributes import CORRELATION_ID
from eventplane.conversation.messages import Replier
from eventplane.conversation.open_requests import (
    NO_ANNOUNCEMENTS,
    Announcements,
    Circuit,
    PeerListener,
    Replies,
)
from eventplane.envelope import Envelope
from eventplane.guarantee import is_expired
from eventplane_client.errors import (
    ClientError,
    ClosedError,
    NoRoomError,
    NotConfirmedError,
    RequestDroppedError,
    UnavailableError,
)
from eventplane_client.pending_requests import Handlers, PendingRequests
from eventplane_client.ports import Message, Transport

_log = logging.getLogger(__name__)

_TEMPORARY: Final = (UnavailableError, NoRoomError, NotConfirmedError)
"""The errors that may end before a request's timeout."""

_OTHERS_S: Final = 1.0
"""After which a reply that another process waits for is visible to that again, seconds."""

_POLL_S: Final = 2.0
_RETRY_S: Final = 1.0
"""After which a table or a queue that does not answer is asked again, seconds. boto3 has its own attempts."""

_MOST: Final = 10
_REMEMBERED: Final = 1_000

FindHandlers = Callable[[Envelope], frozenset[Replier]]

_Result = TypeVar("_Result")


class QueueAsker:
    """Sends the requests of `participant` over `transport`; `replies` receives the replies. Thread-safe.

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
    ) -> None:
        self._participant = participant
        self._transport = transport
        self._replies = replies
        self._handlers = handlers
        self._announced = announced
        self._pending = PendingRequests(participant, on_change)
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._ids: set[str] = set()
        self._poller: threading.Thread | None = None

    def peers(self) -> dict[str, Circuit]:
        return self._pending.peers()

    @property
    def ignored_replies(self) -> int:
        return self._pending.ignored_replies

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        try:
            return self._request(event, timeout_s, durable=durable, expires=expires)
        except _TEMPORARY as error:
            if durable:
                raise
            raise RequestDroppedError(self._participant, str(error)) from error

    def _request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        """Return the replies, or raise what kept the request from being sent until its timeout."""
        give_up = monotonic() + timeout_s
        id, write = self._pending.draft(event, timeout_s, durable=durable, expires=expires)
        request = write(None)

        def put(timeout_s: float) -> None:
            # The event itself says whether it is durable; one that could not be sent at all is tried again.
            self._transport.put(request, timeout_s, durable=True)

        def send(_: float) -> None:
            self._start_poller()
            self._try_until(give_up, put)

        def look(_: float) -> Handlers | None:
            try:
                return self._handlers(request), self._announced()
            except UnavailableError as error:
                _log.warning("%s: it is not known now who handles the event: %s", self._participant, error)
                return None

        found = self._try_until(give_up, lambda _: self._handlers(request))
        handlers = sorted(found, key=str), self._announced()
        with self._pending.changed:
            self._ids.add(id)
        try:
            return self._pending.run(id, handlers, send, look, timeout_s=timeout_s, give_up=give_up)
        finally:
            self._remember(id)

    def close(self) -> None:
        self._pending.close()
        with self._pending.changed:
            poller = self._poller
        if poller is not None:
            poller.join()
        self._replies.close()

    def _remember(self, id: str) -> None:
        """Know the replies to an ended request as this process's own for a while."""
        with self._pending.changed:
            if len(self._ended) == _REMEMBERED:
                self._ids.discard(self._ended[0])
            self._ended.append(id)

    def _start_poller(self) -> None:
        with self._pending.changed:
            if self._poller is None and not self._pending.closed:
                name = f"{self._participant}-replies"
                self._poller = threading.Thread(target=self._poll, name=name, daemon=True)
                self._poller.start()

    def _try_until(self, give_up: float, call: Callable[[float], _Result]) -> _Result:
        """Return what `call`, which gets the seconds left, returns.

        After a temporary error it is called again until `give_up`, at least once in all.
        """
        while True:
            left = max(0.0, give_up - monotonic())
            try:
                return call(left)
            except _TEMPORARY as error:
                if monotonic() >= give_up:
                    raise
                _log.info("%s: a request waits: %s", self._participant, error)
            with self._pending.changed:
                if self._pending.changed.wait_for(lambda: self._pending.closed, min(left, _RETRY_S)):
                    raise ClosedError(self._participant)

    def _poll(self) -> None:
        """Read replies while requests are open."""
        try:
            while self._is_awaited():
                self._read()
        except BaseException:
            with self._pending.changed:
                self._poller = None  # the next request starts another
            raise

    def _is_awaited(self) -> bool:
        with self._pending.changed:
            if not self._pending.closed and len(self._pending):
                return True
            self._poller = None  # in one step with the check: a request that opens now starts a thread
            return False

    def _read(self) -> None:
        try:
            for message in self._replies.receive(_MOST, _POLL_S):
                self._take(message)
        except ClientError as error:
            _log.warning("%s: replies cannot be read now: %s", self._participant, error)
            with self._pending.changed:
                self._pending.changed.wait_for(lambda: self._pending.closed, _RETRY_S)

    def _take(self, message: Message) -> None:
        reply = self._pending.take(message.body)
        if reply is None:
            self._replies.acknowledge([message])
            return
        id, event = reply
        with self._pending.changed:
            is_ours = id in self._ids
        if is_ours or is_expired(event, time.time_ns() // 1_000_000):
            self._replies.acknowledge([message])
        else:
            _log.debug("%s: %s is of another process: %s", self._participant, CORRELATION_ID, id)
            self._replies.release(message, _OTHERS_S)
