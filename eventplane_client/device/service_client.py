"""A client for a service on the device: a durable publisher, and a reader of its inbox.

The local broker's own acknowledgement proves little: a power cut loses what it holds. So a message counts as
sent when the forwarder's receipt confirms that the spool has committed it, and is published again until then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from edge.discovery import DiscoveryError
from edge.link import DnsSd
from edge.mailbox import Received
from edge.mqtt import Endpoint, Login, PinnedCertificate, Will
from edge.mqtt.endpoint import BrokerAddress
from eventplane.conversation.open_requests import TIMEOUT_S, Circuit, PeerChanged, PeerListener, Replies
from eventplane.conversation.questions import (
    HandlersAnswer,
    StateAnswer,
    read_handlers_answer,
    read_state_answer,
    write_handlers_question,
    write_state_question,
)
from eventplane.envelope import Envelope, parse_event
from eventplane.guarantee import is_expired_on_device
from eventplane.interest.announcement import new_announcement, write_announcement
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.sending import sent_again
from eventplane.settings import Range
from eventplane.topics import (
    handlers_answer_topic,
    handlers_topic,
    interest_topic,
    local_topic,
    receipt_topic,
    state_answer_topic,
    state_topic,
)
from eventplane_client.device.asker import Asker
from eventplane_client.device.errors import (
    FlushTimeoutError,
    MessageTooLargeError,
    ReceiptTimeoutError,
    StateTimeoutError,
    WindowFullError,
    dead_lettered,
)
from eventplane_client.device.inbox_handler import CallbackThread, EventHandler, InboxHandler
from eventplane_client.device.loop import CLOSE_S, ServiceLoop
from eventplane_client.device.open_questions import OpenQuestions
from eventplane_client.device.outbox_window import OutboxMessage, OutboxWindow
from eventplane_client.errors import (
    ClientError,
    ClientSettingsError,
    ClosedError,
    NoRoomError,
    NotAskingError,
    RequestDroppedError,
)

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 * 1024
"""Largest message that is sent, bytes. An event is at most 96 KiB; over a megabyte the home's broker ends the
sender's connection."""

RANGES: Final = {
    "window": Range(1, 10_000, "messages", is_whole=True),
    "receipt_timeout_s": Range(0.001, 3_600, "seconds"),
    "port": Range(1, 65_535, "TCP port", is_whole=True),
}
"""The ranges of the numeric settings, by name."""

_KEEPALIVE_S = 30
_CONNECT_TIMEOUT_S = 5.0

_REPLY_S = 30.0
"""How long a handler's thread waits until its reply is stored, seconds."""

_HANDLERS_S = 5.0

_ROOM_S = 0.5
"""Delay before a request that the spool had no room for is sent again, seconds."""


def has_expired(event: Envelope) -> bool:
    """Return whether an event has expired, as far as this device's clock can be trusted."""
    uptime_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return is_expired_on_device(event, time.time_ns() // 1_000_000, uptime_ms)


class Confirm(Protocol):
    """Ends a delivery."""

    def __call__(self, refused: str | None = None, /) -> None:
        """Confirm the message; `refused` is the reason of one that was not handled, such as `expired`."""


DeliveryHandler = Callable[[bytes, Confirm], None]
RefusalHandler = Callable[[bytes, str], None]


class ServiceClient:
    """A durable client for the on-device service called `service`, on the home's broker.

    Args:
        service: the participant's name in the contract.
        host, port: the home's broker; a host that is the path of a Unix socket has no port.
        profile: Mosquitto's profile. The client connects where the profile leads and follows a change of it;
            host and port count only until the profile could be read.
        announced_by: find the broker by DNS-SD instead: the one that the thing of this name announces, '' for
            any. An announcement is not authenticated. Requires the package zeroconf.
        interfaces: the network interfaces to search; none: all that lead to a home's network.
        certificate: the certificate of a broker with TLS, a PEM file: no other is trusted. A broker that is
            found by DNS-SD has to present it.
        on_event: called with every event of the inbox, one after the other, in a thread of its own, at least
            once each. The receipt is sent when it returns. It raises `UnhandleableError` for an event that
            can never be handled; after any other exception the event is redelivered if the contract gives the
            inbox `receipts` (otherwise the broker's acknowledgement has ended its delivery). It returns the
            answer to a request.
        on_delivery: instead of `on_event`, for a reader with several events in flight: called with the
            payload of each message of the inbox and a function that confirms it, which any thread may call.
            The client's own thread calls it: it must not wait; a payload may be no event. An exception counts
            as one of `on_event`.
        on_refused: called with the payload and the reason of a message of `send` that became a dead letter,
            or (`spool_full`) that the device has no room for: then nothing else stores it.
        on_peer: called when the circuit of a peer changes (see `peers`), in the thread of `on_event`; by
            default the change is logged.
        handles: filters of the events that the service handles, announced from the first connection on; see
            `announce`.
        clean_session: whether the broker forgets the service when its connection ends: the service loses the
            events in between, and its announcement ends.
        window: most messages without a receipt.
        receipt_timeout_s: seconds without a receipt, or an answer, after which a message is published again.
        client_id: the MQTT client id; two clients of one service need different ones.
        login: the service's user name and password file, for a broker that requires them.

    Raises:
        ClientSettingsError: a number is out of its range (`RANGES`), or the broker cannot be found like this.
        AnnouncementError: `handles` is not valid.
    """

    def __init__(
        self,
        service: str,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        profile: Path | None = None,
        announced_by: str | None = None,
        interfaces: Sequence[str] = (),
        certificate: Path | None = None,
        on_event: EventHandler | None = None,
        on_delivery: DeliveryHandler | None = None,
        on_refused: RefusalHandler | None = None,
        on_peer: PeerListener | None = None,
        handles: Iterable[object] | None = None,
        clean_session: bool = False,
        window: int = 200,
        receipt_timeout_s: float = 5.0,
        client_id: str | None = None,
        login: Login | None = None,
    ) -> None:
        self.service = service
        # First: a wrong setting must leave no thread behind.
        _check(window=window, receipt_timeout_s=receipt_timeout_s, port=port)
        announced = None if handles is None else self._announcement(handles)
        self._on_delivery = on_delivery
        self._on_refused = on_refused
        self._handler = (
            InboxHandler(service, on_event, self._store_reply, self._is_redelivered, has_expired)
            if on_event
            else None
        )
        self._window = OutboxWindow(window, receipt_timeout_s)
        self._states = OpenQuestions(
            state_topic(service), receipt_timeout_s, write_state_question, read_state_answer
        )
        self._handlers = OpenQuestions(
            handlers_topic(service), receipt_timeout_s, write_handlers_question, read_handlers_answer
        )
        self._on_peer = on_peer or self._log_peer
        self._asker = Asker(service, self._ask_handlers, self._report_peer)
        replies = local_topic(service, "replies")
        questions: dict[str, OpenQuestions[str, StateAnswer] | OpenQuestions[Envelope, HandlersAnswer]] = {
            state_answer_topic(service): self._states,
            handlers_answer_topic(service): self._handlers,
        }
        topics = [receipt_topic(service, "outbox"), *questions, replies]
        if on_event or on_delivery:
            topics.append(local_topic(service, "inbox"))
        address = BrokerAddress(host, port, PinnedCertificate(certificate) if certificate else None)
        endpoint = Endpoint(
            host=host,
            port=port,
            client_id=client_id or f"eventplane-{service}",
            clean_session=clean_session,
            keepalive_s=_KEEPALIVE_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            subscriptions=tuple(topics),
            login=login,
            # A persistent session keeps its interest while it is offline: its events wait.
            will=Will(interest_topic(service), b"", retain=True) if clean_session else None,
        )
        self._stopped = threading.Event()
        try:
            self._loop = ServiceLoop(
                service,
                address,
                profile if announced_by is None else DnsSd(announced_by, tuple(interfaces)),
                endpoint,
                self._window,
                questions,
                {replies: self._asker.pending.take},
                self._deliver,
                self._report_refused,
            )
        except DiscoveryError as error:
            raise ClientSettingsError("announced_by", str(error), "or name the broker's address") from error
        self._callbacks = CallbackThread(f"{service}-callbacks")
        if announced is not None:
            self._loop.announce(announced)
        self._loop.start()

    @property
    def waiting(self) -> int:
        """The number of messages without a receipt."""
        return len(self._window)

    def put(self, event: Envelope | bytes, timeout_s: float = 30.0) -> None:
        """Send an event (or raw bytes) and return once the forwarder's spool has committed it.

        Raises:
            MessageTooLargeError: it is larger than `MAX_MESSAGE_BYTES`, which the broker would drop.
            WindowFullError: the window did not get room within `timeout_s` seconds.
            ReceiptTimeoutError: no receipt came within `timeout_s` seconds; the client goes on sending it.
            NoRoomError: the device has no room for it; it is not stored.
            RefusedError: it was stored as a dead letter, because it can never be delivered.
            ClosedError: the client was closed.
        """
        self._put(event, timeout_s, durable=True)

    def _put(self, event: Envelope | bytes, timeout_s: float, *, durable: bool) -> None:
        """Do what `put` does; without `durable` stop sending the event after the timeout.

        Raises `RequestDroppedError` for one that was then not sent at all.
        """
        give_up = monotonic() + timeout_s
        message = self._add(event, timeout_s, awaited=True)
        receipt = self._window.wait_receipt(message, max(0.0, give_up - monotonic()))
        if receipt is None:
            if self._stopped.is_set():
                raise ClosedError(self.service)
            if not durable and not self._window.withdraw(message):
                raise RequestDroppedError(self.service, "there is no connection")
            raise ReceiptTimeoutError(self.service, timeout_s)
        if receipt.refused == SPOOL_FULL:
            raise NoRoomError(self.service)
        if receipt.refused is not None:
            raise dead_lettered(self.service, receipt.refused)

    def send(self, event: Envelope | bytes, timeout_s: float = 30.0) -> None:
        """Do what `put` does, but return once the event is in the window: for many at a time, see `flush`.

        The client publishes it until the receipt comes; a refusal goes to `on_refused`. Bytes equal to those
        of a message that still waits are the same message. Raises `MessageTooLargeError`, `WindowFullError`
        and `ClosedError` as `put` does.
        """
        self._add(event, timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Wait until every message has its receipt, that is, until the spool has committed it.

        Raises:
            FlushTimeoutError: some had none after `timeout_s` seconds.
            ClosedError: the client was closed meanwhile.
        """
        if not self._window.wait_empty(timeout_s):
            if self._stopped.is_set():
                raise ClosedError(self.service)
            raise FlushTimeoutError(self.service, len(self._window), timeout_s)

    def state(self, key: str, timeout_s: float = 30.0) -> Envelope | None:
        """Return the newest state of `key` (`kind/namespace/name`) that the cloud sent.

        None if there is none, it is deleted, or no route leads it to this service. Newer ones come to the
        inbox: ask after subscribing (`on_event`), so that none is missed in between.

        Raises:
            StateTimeoutError: no answer came within `timeout_s` seconds.
            NotAskingError: the device's forwarder does not answer such questions.
            ClosedError: the client was closed.
        """
        question = self._states.ask(key)
        self._loop.wake()
        answer = self._states.wait_answer(question, timeout_s)
        if answer is None:
            raise (
                ClosedError(self.service)
                if self._stopped.is_set()
                else StateTimeoutError(self.service, key, timeout_s)
            )
        if answer.problem is not None:
            raise NotAskingError(self.service, answer.problem)
        return None if answer.json is None else parse_event(answer.json)

    def request(
        self,
        event: Envelope | bytes,
        timeout_s: float = TIMEOUT_S,
        *,
        durable: bool = True,
        expires: bool = False,
    ) -> Replies:
        """Send an event and return the replies of all who handle it, here and in the cloud, by participant.

        A reply `not_awaited` is of a participant whose circuit is open (see `peers`), `unhandled` of one that
        handles such events no more; without handlers there are no replies. The event waits for the
        connection, the window and room in the spool until the timeout. Without `durable` it is not stored: it
        is delivered at best effort, and never sent after the timeout. With `expires` no participant handles
        it after the timeout; the cloud decides that by its own clock, so the device's has to be right. Do not
        call it from `on_event`, whose thread the answers of this service need.

        Raises:
            RequestTimeoutError: a participant did not reply within `timeout_s` seconds; it has the replies.
                If its `missing` is None, the event was not sent: `put` what must not be lost.
            RequestDroppedError: without `durable`: until the timeout there was no connection or no room.
            NotAskingError: the contract does not let the service ask with such an event.
            TooManyRequestsError: the limit of open requests is reached.
            EnvelopeError: it is no event, or a request already.
            MessageTooLargeError, WindowFullError, NoRoomError, RefusedError, ClosedError: as of `put`; no
                room means until the timeout.
        """
        asked = event if isinstance(event, Envelope) else parse_event(event)
        send = partial(self._send_request, durable=durable)
        return self._asker.request(asked, timeout_s, send, durable=durable, expires=expires)

    def peers(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked: whether requests wait for it."""
        return self._asker.pending.peers()

    @property
    def ignored_replies(self) -> int:
        """The number of replies ignored: malformed, of one that was not asked, or in another's name."""
        return self._asker.pending.ignored_replies

    def announce(self, filters: Iterable[object]) -> None:
        """Announce what the service handles: events that match none of `filters` are not delivered to it.

        Filters are as in a contract; without any, only urgent events come. The announcement is repeated over
        each connection. It lasts until `withdraw`, also while the service is offline; with a clean session it
        ends with the connection. A service has one announcement, whichever client made it.

        Raises `AnnouncementError`.
        """
        self._loop.announce(self._announcement(filters))

    def withdraw(self) -> None:
        """Withdraw the announcement: all events are delivered again."""
        self._loop.announce(b"")

    def close(self) -> None:
        """Close at once, without waiting for receipts (see `flush`)."""
        self._stopped.set()
        self._window.close()
        self._states.close()
        self._handlers.close()
        self._asker.pending.close()
        self._loop.close()
        self._callbacks.close(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _announcement(self, filters: Iterable[object]) -> bytes:
        return write_announcement(new_announcement(self.service, filters))

    def _add(self, event: Envelope | bytes, timeout_s: float, *, awaited: bool = False) -> OutboxMessage:
        if isinstance(event, Envelope):
            # It may be an event that was received: this service is now its sender.
            event = sent_again(event)
        payload = event.json.encode("utf-8") if isinstance(event, Envelope) else event
        if len(payload) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(self.service, len(payload), MAX_MESSAGE_BYTES)
        message = self._window.add(payload, timeout_s, awaited=awaited)
        if message is None:
            if self._stopped.is_set():
                raise ClosedError(self.service)
            raise WindowFullError(self.service, len(self._window), timeout_s)
        self._loop.wake()
        return message

    def _send_request(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        """Put `event`, again while the spool has no room for it, until the timeout."""
        give_up = monotonic() + timeout_s
        while True:
            try:
                self._put(event, max(0.0, give_up - monotonic()), durable=durable)
            except ReceiptTimeoutError:
                return  # the replies are late too, and that error says more
            except WindowFullError as error:
                if durable:
                    raise
                raise RequestDroppedError(self.service, "the window has no room") from error
            except NoRoomError as error:
                # The last attempt has as much time for its receipt as the one before had to wait.
                if give_up - monotonic() < 2 * _ROOM_S:
                    if durable:
                        raise
                    raise RequestDroppedError(self.service, "the device has no room for it") from error
            else:
                return
            if self._stopped.wait(_ROOM_S):
                raise ClosedError(self.service)

    def _ask_handlers(self, event: Envelope, timeout_s: float) -> HandlersAnswer | None:
        question = self._handlers.ask(event)
        self._loop.wake()
        answer = self._handlers.wait_answer(question, timeout_s)
        if answer is None and self._stopped.is_set():
            raise ClosedError(self.service)
        return answer

    def _is_redelivered(self, event: Envelope) -> bool:
        """Return whether an event that failed is redelivered; if unknown, assume so and send no reply."""
        answer = self._ask_handlers(event, _HANDLERS_S)
        return answer is None or answer.comes_again

    def _store_reply(self, reply: Envelope) -> None:
        try:
            self.put(reply, _REPLY_S)
        except ClientError as error:
            # The work is done, and must not be repeated only because its reply is lost.
            _log.warning("%s: a reply is lost: %s", self.service, error)

    def _log_peer(self, change: PeerChanged) -> None:
        _log.warning("%s: the circuit of %s is %s", self.service, change.peer, change.circuit)

    def _report_peer(self, change: PeerChanged) -> None:
        # The service's code runs neither under the asker's lock nor in the thread of the connection.
        self._callbacks.submit(partial(self._on_peer, change))

    def _deliver(self, received: Received) -> None:
        if self._on_delivery:
            name = digest(received.payload)

            def confirm(refused: str | None = None, /) -> None:
                self._loop.confirm(received, Receipt(name, refused))

            try:
                self._on_delivery(received.payload, confirm)
            except Exception:  # noqa: BLE001 -- the service's code may raise anything
                _log.exception("%s: on_delivery failed", self.service)
                self._loop.confirm(received, None)
        else:
            self._callbacks.submit(partial(self._handle_event, received))

    def _handle_event(self, received: Received) -> None:
        receipt = None
        try:
            receipt = self._handler.handle(received.payload) if self._handler else None
        finally:
            self._loop.confirm(received, receipt)

    def _report_refused(self, payload: bytes, reason: str) -> None:
        if self._on_refused:
            self._callbacks.submit(partial(self._on_refused, payload, reason))
        else:
            _log.warning("%s: a message was refused: %s", self.service, reason)


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        try:
            RANGES[name].read(value)
        except ValueError as error:
            raise ClientSettingsError(name, f"{value!r} is out of range", f"give {RANGES[name]}") from error
