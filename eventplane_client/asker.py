"""Asks where replies come into a queue that the participant's processes share."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final, TypeVar

from eventplane.conversation.attributes import CORRELATION_ID
from eventplane.conversation.circuit import Circuit
from eventplane.conversation.errors import ReplyError
from eventplane.conversation.open_requests import (
    NO_ANNOUNCEMENTS,
    Announcements,
    OpenRequests,
    Replies,
)
from eventplane.conversation.peers import PeerListener
from eventplane.conversation.reply import Replier, read_reply
from eventplane.conversation.request import write_request
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.expiry import is_expired
from eventplane.timestamps import timestamp
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

_log = logging.getLogger(__name__)

_AWAY: Final = (UnavailableError, NoRoomError, NotConfirmedError)
"""What may be over before a request's timeout."""

LOOK_AGAIN_S = 5.0
"""How often an asker looks whether those it waits for still handle the event, seconds."""

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


class QueueAsker:
    """Asks as `participant` over `transport`; what `replies` receives are the replies.

    `handlers` says who handles an event, by what is in force now; it raises the client's errors and those of
    `eventplane.conversation`. `announced` names the last announcements of participants. A thread polls while
    requests are open.
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
        self._changed = threading.Condition()
        self._requests = OpenRequests(on_change)
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._ids: set[str] = set()
        self._poller: threading.Thread | None = None
        self._closed = False

    def peers(self) -> dict[str, Circuit]:
        with self._changed:
            return self._requests.peers()

    @property
    def ignored_replies(self) -> int:
        with self._changed:
            return self._requests.ignored

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        try:
            return self._request(event, timeout_s, durable=durable, expires=expires)
        except _AWAY as error:
            if durable:
                raise
            raise RequestDroppedError(self._participant, str(error)) from error

    def _request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        """Ask, and raise what kept the request from being sent until its timeout."""
        give_up = monotonic() + timeout_s
        now = datetime.now(UTC)
        id = secrets.token_hex(_ID_BYTES)
        asked = write_request(
            event,
            asker=self._participant,
            device=None,
            correlation_id=id,
            deadline=timestamp(now + timedelta(seconds=timeout_s)) if expires else None,
            now=timestamp(now),
            durable=durable,
        )

        def put(timeout_s: float) -> None:
            # The event itself says whether it need be kept; what could not be sent at all is tried again.
            self._transport.put(asked, timeout_s, durable=True)

        self._open(id, self._try_until(give_up, lambda _: self._handlers(asked)))
        try:
            self._try_until(give_up, put)
            answered = self._wait(id, asked, give_up)
        except BaseException:
            self._end(id, timed_out=False)
            raise
        replies, missing = self._end(id, timed_out=not answered)
        if missing:
            raise RequestTimeoutError(self._participant, timeout_s, replies, missing)
        return replies

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            poller = self._poller
        if poller is not None:
            poller.join()
        self._replies.close()

    def _open(self, id: str, peers: frozenset[Replier]) -> None:
        with self._changed:
            if self._closed:
                raise ClosedError(self._participant)
            self._requests.open(id, sorted(peers, key=str), self._announced())
            self._ids.add(id)
            if self._poller is None:
                self._poller = threading.Thread(
                    target=self._poll, name=f"{self._participant}-replies", daemon=True
                )
                self._poller.start()

    def _end(self, id: str, *, timed_out: bool) -> tuple[Replies, list[str]]:
        with self._changed:
            if len(self._ended) == _REMEMBERED:
                self._ids.discard(self._ended[0])
            self._ended.append(id)
            return self._requests.end(id, timed_out=timed_out)

    def _try_until(self, give_up: float, call: Callable[[float], _Result]) -> _Result:
        """Return what `call`, which gets the seconds left, returns.

        While what it needs is away or full it is called again, at least once in all, until `give_up`.
        """
        while True:
            left = max(0.0, give_up - monotonic())
            try:
                return call(left)
            except _AWAY as error:
                if monotonic() >= give_up:
                    raise
                _log.info("%s: a request waits: %s", self._participant, error)
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, min(left, _RETRY_S)):
                    raise ClosedError(self._participant)

    def _wait(self, id: str, asked: Envelope, give_up: float) -> bool:
        """Whether nobody is waited for any more, before `give_up`."""
        while True:
            left = give_up - monotonic()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._requests.is_answered(id), max(0.0, min(left, LOOK_AGAIN_S))
                )
                if self._requests.is_answered(id):
                    return True
                if self._closed:
                    raise ClosedError(self._participant)
            if monotonic() >= give_up:
                return False
            try:
                found = self._handlers(asked)
            except UnavailableError as error:
                _log.warning("%s: who handles the event is not known now: %s", self._participant, error)
                continue
            with self._changed:
                self._requests.handlers_are(id, found, self._announced())

    def _poll(self) -> None:
        """While requests are open."""
        try:
            while self._is_awaited():
                self._read()
        except BaseException:
            with self._changed:
                self._poller = None  # the next request begins anew
            raise

    def _is_awaited(self) -> bool:
        with self._changed:
            if not self._closed and len(self._requests):
                return True
            self._poller = None  # in one step with the look: a request that opens now starts a thread
            return False

    def _read(self) -> None:
        try:
            for message in self._replies.receive(_MOST, _POLL_S):
                self._take(message)
        except ClientError as error:
            _log.warning("%s: replies cannot be read now: %s", self._participant, error)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _RETRY_S)

    def _take(self, message: Message) -> None:
        try:
            event = parse_event(message.body)
            id, reply = read_reply(event)
        except (EnvelopeError, ReplyError) as error:
            _log.warning("%s: a reply ignored: %s", self._participant, error)
            with self._changed:
                self._requests.ignored += 1
            self._replies.acknowledge([message])
            return
        with self._changed:
            is_ours = id in self._ids
            # That of another process is a sign of life as well.
            counts = self._requests.replied(id, reply)
            self._changed.notify_all()
        if not counts:
            _log.warning("%s: a reply ignored: %s was not asked", self._participant, reply.replier)
        if is_ours or is_expired(event, time.time_ns() // 1_000_000):
            self._replies.acknowledge([message])
        else:
            _log.debug("%s: %s is another's: %s", self._participant, CORRELATION_ID, id)
            self._replies.release(message, _OTHERS_S)
