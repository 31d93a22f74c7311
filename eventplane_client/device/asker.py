"""Requests of a service on the device: an event goes out, and the replies of all who handle it come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from eventplane.conversation.messages import Replier
from eventplane.conversation.open_requests import PeerListener, Replies
from eventplane.conversation.questions import HandlersAnswer
from eventplane.envelope import Envelope
from eventplane_client.errors import NotAskingError, RequestDroppedError, RequestTimeoutError
from eventplane_client.pending_requests import Handlers, PendingRequests

AskHandlers = Callable[[Envelope, float], HandlersAnswer | None]
Send = Callable[[Envelope, float], None]


class Asker:
    """Sends the requests of `service` and collects their replies. Thread-safe.

    `ask_handlers` returns who handles an event, None if it was not answered within the given seconds;
    `on_change` is called when the circuit of a peer changes, and must not ask.
    """

    def __init__(self, service: str, ask_handlers: AskHandlers, on_change: PeerListener) -> None:
        self.pending = PendingRequests(service, on_change)
        self._service = service
        self._ask_handlers = ask_handlers

    def request(
        self, event: Envelope, timeout_s: float, send: Send, *, durable: bool = True, expires: bool
    ) -> Replies:
        """Send `event` as a request with `send` and return the replies. See `ServiceClient.request`."""
        give_up = monotonic() + timeout_s
        id, write = self.pending.draft(event, timeout_s, durable=durable, expires=expires)
        draft = write(None)
        found = self._find(draft, timeout_s)
        if found is None:
            if durable:
                raise RequestTimeoutError(self._service, timeout_s, {}, None)
            raise RequestDroppedError(self._service, "the forwarder did not answer who handles the event")
        request = write(found.thing)

        def look(timeout_s: float) -> Handlers | None:
            again = self._find(draft, timeout_s)
            return None if again is None else _handlers_of(again)

        return self.pending.run(
            id, _handlers_of(found), partial(send, request), look, timeout_s=timeout_s, give_up=give_up
        )

    def _find(self, draft: Envelope, timeout_s: float) -> HandlersAnswer | None:
        found = self._ask_handlers(draft, timeout_s)
        if found is not None and found.problem is not None:
            raise NotAskingError(self._service, found.problem)
        return found


def _handlers_of(answer: HandlersAnswer) -> Handlers:
    announced = {Replier(name): announcement for name, announcement in answer.announced.items()}
    return [Replier(each) for each in answer.handlers], announced
