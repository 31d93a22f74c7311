"""The requests of one participant that wait for replies, whatever transport carries them."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from eventplane.conversation.messages import Replier, ReplyError, read_reply, write_request
from eventplane.conversation.open_requests import Announcements, Circuit, OpenRequests, PeerListener, Replies
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.values import timestamp
from eventplane_client.errors import ClosedError, RequestTimeoutError

_log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Between two checks whether those a request waits for still handle the event, seconds."""

_ID_BYTES: Final = 16

Handlers = tuple[Collection[Replier], Announcements]
"""Who handles an event, and the names of their last announcements."""

LookAgain = Callable[[float], Handlers | None]
"""Returns who handles the event by now, None if that is not known within the given seconds."""


WriteRequest = Callable[[str | None], Envelope]
"""Returns the request for the device whose services handle the event, None for any."""


class PendingRequests:
    """The open requests of `participant`. Thread-safe; `changed` guards it and what its owner adds.

    `on_change` is called when the circuit of a peer changes, and must not ask.
    """

    def __init__(self, participant: str, on_change: PeerListener) -> None:
        self.changed = threading.Condition()
        self.closed = False
        self._participant = participant
        self._requests = OpenRequests(on_change)

    def __len__(self) -> int:
        return len(self._requests)

    def peers(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked."""
        with self.changed:
            return self._requests.peers()

    @property
    def ignored_replies(self) -> int:
        """The number of replies ignored: malformed, of one that was not asked, or in another's name."""
        with self.changed:
            return self._requests.ignored

    def draft(
        self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool
    ) -> tuple[str, WriteRequest]:
        """Return the id of a new request for `event`, and what writes it. Raises `EnvelopeError`."""
        id = secrets.token_hex(_ID_BYTES)
        now = datetime.now(UTC)
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

        return id, write

    def run(
        self,
        id: str,
        handlers: Handlers,
        send: Callable[[float], None],
        look: LookAgain,
        *,
        timeout_s: float,
        give_up: float,
    ) -> Replies:
        """Open the request `id`, `send` it within the given seconds, and return the replies.

        `give_up` is the monotonic time at which its `timeout_s` ends. Raises `RequestTimeoutError`,
        `TooManyRequestsError`, `ClosedError`, and what `send` and `look` raise.
        """
        with self.changed:
            if self.closed:
                raise ClosedError(self._participant)
            self._requests.open(id, *handlers)
        try:
            send(max(0.0, give_up - monotonic()))
            answered = self._wait(id, give_up, look)
        except BaseException:
            with self.changed:
                self._requests.end(id, timed_out=False)
            raise
        with self.changed:
            replies, missing = self._requests.end(id, timed_out=not answered)
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

    def close(self) -> None:
        """Wake the threads that wait."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _wait(self, id: str, give_up: float, look: LookAgain) -> bool:
        """Wait until `give_up`; return whether every reply came."""
        while True:
            left = give_up - monotonic()
            with self.changed:
                self.changed.wait_for(
                    lambda: self.closed or self._requests.is_answered(id), max(0.0, min(left, LOOK_AGAIN_S))
                )
                if self._requests.is_answered(id):
                    return True
                if self.closed:
                    raise ClosedError(self._participant)
            left = give_up - monotonic()
            if left <= 0:
                return False
            if handlers := look(min(left, LOOK_AGAIN_S)):
                with self.changed:
                    self._requests.update_handlers(id, *handlers)
