"""Runs a service's handler with the events of its inbox, and replies where somebody waits for that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from edge.errors import RefusedError
from eventplane.conversation.reply import Failure, Reply, Status, replier_to, write_reply
from eventplane.conversation.request import is_request
from eventplane.delivery import Outcome
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.receipts import Receipt, digest
from eventplane.timestamps import timestamp

_log = logging.getLogger(__name__)

EventHandler = Callable[[Envelope], object]
"""What it returns is the answer to a request: None, or any JSON."""


class InboxHandler:
    """Of `service`. `send` keeps a reply for good; `comes_again` says whether an event that failed does.

    An event that `has_expired` is refused, and not handled.
    """

    def __init__(
        self,
        service: str,
        handler: EventHandler,
        send: Callable[[Envelope], None],
        comes_again: Callable[[Envelope], bool],
        has_expired: Callable[[Envelope], bool],
    ) -> None:
        self._service = service
        self._handler = handler
        self._send = send
        self._comes_again = comes_again
        self._has_expired = has_expired

    def handle(self, payload: bytes) -> Receipt:
        """The receipt for a message of the inbox. Raises what the handler raised, if that is not the end.

        The reply goes first: after a crash in between the event comes again and the reply is repeated. The
        other way round the work would be done and nobody told.
        """
        try:
            event = parse_event(payload)
        except EnvelopeError as error:
            return Receipt(digest(payload), error.reason)
        if self._has_expired(event):
            _log.warning("%s: event %r of %s expired, and is not handled", self._service, *event.claim[::-1])
            return Receipt(digest(payload), Outcome.EXPIRED)
        try:
            answer = self._handler(event)
        except RefusedError as error:
            self._reply(event, Status.FAILED, failure=Failure(error.reason, str(error)))
            return Receipt(digest(payload), error.reason)
        except Exception as error:
            if is_request(event) and not self._comes_again(event):
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
