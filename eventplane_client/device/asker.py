"""Requests of a service on the device: an event goes out, and the replies of all who handle it come back."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

from eventplane.conversation.circuit import Circuit
from eventplane.conversation.errors import ReplyError
from eventplane.conversation.open_requests import Announcements, OpenRequests, Replies
from eventplane.conversation.peers import PeerListener
from eventplane.conversation.reply import Replier, read_reply
from eventplane.conversation.request import write_request
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.questions import HandlersAnswer
from eventplane.timestamps import timestamp
from eventplane_client.errors import ClosedError, NotAskingError, RequestDroppedError, RequestTimeoutError

_log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Between two checks whether those it waits for still handle the event, seconds."""

_ID_BYTES = 16

AskHandlers = Callable[[Envelope, float], HandlersAnswer | None]
Send = Callable[[Envelope, float], None]


class Asker:
    """Sends the requests of `service` and collects their replies. Thread-safe.

    `ask_handlers` returns who handles an event, None if it was not answered within the given seconds;
    `on_change` is called when the circuit of a peer changes, and must not ask.
    """

    def __init__(self, service: str, ask_handlers: AskHandlers, on_change: PeerListener) -> None:
        self._service = service
        self._ask_handlers = ask_handlers
        self._changed = threading.Condition()
        self._requests = OpenRequests(on_change)
        self._closed = False

    def peers(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked."""
        with self._changed:
            return self._requests.peers()

    @property
    def ignored_replies(self) -> int:
        """The number of replies ignored: malformed, of one that was not asked, or in another's name."""
        with self._changed:
            return self._requests.ignored

    def request(
        self, event: Envelope, timeout_s: float, send: Send, *, durable: bool = True, expires: bool
    ) -> Replies:
        """Send `event` as a request with `send` and return the replies. See `ServiceClient.request`."""
        give_up = monotonic() + timeout_s
        now = datetime.now(UTC)
        id = secrets.token_hex(_ID_BYTES)
        deadline = timestamp(now + timedelta(seconds=timeout_s)) if expires else None

        def written(device: str | None) -> Envelope:
            return write_request(
                event,
                asker=self._service,
                device=device,
                correlation_id=id,
                deadline=deadline,
                now=timestamp(now),
                durable=durable,
            )

        draft = written(None)
        found = self._handlers(draft, timeout_s)
        if found is None:
            if durable:
                raise RequestTimeoutError(self._service, timeout_s, {}, None)
            raise RequestDroppedError(self._service, "the forwarder did not answer who handles the event")
        with self._changed:
            self._requests.open(id, *_handlers_of(found))
        try:
            send(written(found.thing), max(0.0, give_up - monotonic()))
            answered = self._wait(id, draft, give_up)
        except BaseException:
            with self._changed:
                self._requests.end(id, timed_out=False)
            raise
        with self._changed:
            replies, missing = self._requests.end(id, timed_out=not answered)
        if missing:
            raise RequestTimeoutError(self._service, timeout_s, replies, missing)
        return replies

    def take(self, payload: bytes) -> None:
        """Take a message of the topic of replies."""
        try:
            correlation_id, reply = read_reply(parse_event(payload))
        except (EnvelopeError, ReplyError) as error:
            _log.warning("%s: ignored a reply: %s", self._service, error)
            with self._changed:
                self._requests.ignored += 1
            return
        with self._changed:
            counts = self._requests.replied(correlation_id, reply)
            self._changed.notify_all()
        if not counts:
            _log.warning("%s: ignored a reply: %s was not asked", self._service, reply.replier)

    def close(self) -> None:
        """Wake the threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, id: str, draft: Envelope, give_up: float) -> bool:
        """Wait until `give_up`; return whether every reply came."""
        while True:
            left = give_up - monotonic()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._requests.is_answered(id), max(0.0, min(left, LOOK_AGAIN_S))
                )
                if self._requests.is_answered(id):
                    return True
                if self._closed:
                    raise ClosedError(self._service)
            left = give_up - monotonic()
            if left <= 0:
                return False
            if found := self._handlers(draft, min(left, LOOK_AGAIN_S)):
                with self._changed:
                    self._requests.handlers_are(id, *_handlers_of(found))

    def _handlers(self, draft: Envelope, timeout_s: float) -> HandlersAnswer | None:
        found = self._ask_handlers(draft, timeout_s)
        if found is not None and found.problem is not None:
            raise NotAskingError(self._service, found.problem)
        return found


def _handlers_of(answer: HandlersAnswer) -> tuple[list[Replier], Announcements]:
    """Return the peers that handle the event, and the names of their last announcements."""
    announced = {Replier(name): announcement for name, announcement in answer.announced.items()}
    return [Replier(each) for each in answer.handlers], announced
