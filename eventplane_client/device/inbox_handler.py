"""Runs a service's own code: its inbox handler, and its callbacks in a thread that may wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from queue import SimpleQueue

from eventplane.conversation.messages import Failure, Reply, Status, is_request, replier_to, write_reply
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Outcome
from eventplane.receipts import Receipt, digest
from eventplane.values import timestamp
from eventplane_client.device.errors import UnhandleableError

_log = logging.getLogger(__name__)

EventHandler = Callable[[Envelope], object]
"""Returns the answer to a request: None, or any JSON."""


class InboxHandler:
    """Handles the inbox of `service` with `handler`.

    `send` stores a reply durably; `is_redelivered` returns whether an event that failed comes again;
    `has_expired` whether it is refused unhandled.
    """

    def __init__(
        self,
        service: str,
        handler: EventHandler,
        send: Callable[[Envelope], None],
        is_redelivered: Callable[[Envelope], bool],
        has_expired: Callable[[Envelope], bool],
    ) -> None:
        self._service = service
        self._handler = handler
        self._send = send
        self._is_redelivered = is_redelivered
        self._has_expired = has_expired

    def handle(self, payload: bytes) -> Receipt:
        """Handle a message of the inbox and return its receipt.

        Raises what the handler raised where the event may be handled later. The reply goes first: after a
        crash in between the event comes again and the reply is repeated. In the other order the work would
        be done and nobody would know.
        """
        try:
            event = parse_event(payload)
        except EnvelopeError as error:
            return Receipt(digest(payload), error.reason)
        if self._has_expired(event):
            _log.warning("%s: event %r of %s expired and is not handled", self._service, *event.claim[::-1])
            return Receipt(digest(payload), Outcome.EXPIRED)
        try:
            answer = self._handler(event)
        except UnhandleableError as error:
            self._reply(event, Status.FAILED, failure=Failure(error.reason, str(error)))
            return Receipt(digest(payload), error.reason)
        except Exception as error:
            if is_request(event) and not self._is_redelivered(event):
                self._reply(event, Status.FAILED, failure=Failure.of(error))
            raise
        self._reply(event, Status.HANDLED, answer)
        return Receipt(digest(payload))

    def _reply(
        self, event: Envelope, status: Status, answer: object = None, failure: Failure | None = None
    ) -> None:
        if is_request(event):
            reply = Reply(replier_to(event, self._service), status, answer, failure)
            self._send(write_reply(event, reply, timestamp(datetime.now(UTC))))


class CallbackThread:
    """Runs submitted jobs one after the other; logs a job that fails and goes on with the next.

    The service's code may wait, fail or be slow without holding up the loop.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` after those before it."""
        self._jobs.put(job)

    def close(self, timeout_s: float) -> None:
        """Start no further job, and wait up to `timeout_s` seconds for the one that runs."""
        self._closed = True
        self._jobs.put(None)
        if self._thread is not threading.current_thread():  # a job may close its own thread
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            try:
                job()
            except Exception:  # noqa: BLE001 -- the service's code may raise anything
                _log.exception("%s: a callback failed", self._thread.name)
