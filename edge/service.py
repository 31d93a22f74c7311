"""What a service on the device uses to take part: a durable publisher, and a reader of its inbox.

    with ServiceClient("call-service", on_event=place_call) as client:
        client.put(write_event({...}, {...}))  # it is in the spool when this returns

The local broker's own acknowledgement says little: a power cut takes what it holds. So a message counts as
sent when the forwarder's receipt says that the spool has committed it, and is published again until then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from types import TracebackType
from typing import Final, Protocol, Self

from edge.asker import Asker
from edge.callbacks import CallbackThread
from edge.errors import (
    ClientClosedError,
    DeadLetteredError,
    EdgeError,
    FlushTimeoutError,
    MessageTooLargeError,
    ReceiptTimeoutError,
    RequestDroppedError,
    SettingProblem,
    SettingsError,
    StateTimeoutError,
    StoreFullError,
    WindowFullError,
)
from edge.inbox_handler import EventHandler, InboxHandler
from edge.life_clock import system_uptime
from edge.link import DnsSd
from edge.mailbox import Received
from edge.mqtt import Endpoint, Login, PinnedCertificate, Will
from edge.mqtt.endpoint import BrokerAddress
from edge.outbox_window import OutboxMessage, OutboxWindow
from edge.questions import handlers, state
from edge.questions.handlers import HandlersAnswer
from edge.questions.open_questions import OpenQuestions
from edge.questions.state import StateAnswer
from edge.service_loop import CLOSE_S, ServiceLoop
from eventplane.announcement import new_announcement, write_announcement
from eventplane.conversation.circuit import Circuit
from eventplane.conversation.open_requests import TIMEOUT_S, Replies
from eventplane.conversation.peers import PeerChanged, PeerListener
from eventplane.envelope import Envelope, parse_event
from eventplane.expiry import is_expired_on_device
from eventplane.ranges import Range
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.sending import sent_again
from eventplane.topics import (
    handlers_answer_topic,
    handlers_topic,
    interest_topic,
    local_topic,
    receipt_topic,
    state_answer_topic,
    state_topic,
)

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 * 1024
"""Largest message that the home's broker takes, bytes: `message_size_limit` of our Mosquitto profile. What is
larger is dropped in silence: no receipt would ever come."""

RANGES: Final = {
    "window": Range(1, 10_000, "messages", is_whole=True),
    "receipt_timeout_s": Range(0.001, 3_600, "seconds"),
    "port": Range(1, 65_535, "TCP port", is_whole=True),
}
"""What the settings of a service client that are numbers accept, by their names."""

_KEEPALIVE_S = 30
_CONNECT_TIMEOUT_S = 5.0

_REPLY_S = 30.0
"""How long a handler's thread waits until its reply is kept, seconds."""

_HANDLERS_S = 5.0

_ROOM_S = 0.5
"""After which a request that the spool had no room for is sent again, seconds."""


def has_expired(event: Envelope) -> bool:
    """Return whether the time of an event is over, as far as this device's clock can be believed."""
    return is_expired_on_device(event, time_ns() // 1_000_000, system_uptime().ms)


class Confirm(Protocol):
    """Ends a delivery."""

    def __call__(self, refused: str | None = None, /) -> None:
        """It is dealt with; `refused` is the reason word of one that was not handled, such as `expired`."""


DeliveryHandler = Callable[[bytes, Confirm], None]
RefusalHandler = Callable[[bytes, str], None]


class ServiceClient:
    """A durable client for the on-device service called `service`, on the home's broker.

    Args:
        service: the participant's name in the contract.
        host, port: the home's broker; the path of a Unix socket as host has no port.
        profile: Mosquitto's profile, which says where the broker is, also when it changes. Host and port then
            count only until it could be read.
        announced_by: find the broker by DNS-SD in place of all that: the one that the thing of this name
            announces, '' for any. An announcement is not authenticated. It takes the package zeroconf.
        interfaces: the network interfaces on which to find it; none: all that a home's network is on.
        certificate: the certificate of a broker with TLS, a PEM file: no other is trusted. One that is found
            by DNS-SD has to show it.
        on_event: called with every event of the inbox, one after the other, in a thread of its own; at least
            once each. When it returns, the receipt goes out. It raises `RefusedError` for an event that can
            never be handled; after any other exception the event comes again if the contract gives the inbox
            `receipts` (otherwise the broker's acknowledgement has ended its delivery). What it returns is the
            answer to a request.
        on_delivery: in place of `on_event`, for a reader with several events in hand: called with the payload
            of each message of the inbox and a function that confirms it, which any thread may call, once it
            is dealt with. Called by the client's own thread: it must not wait; a payload may be no event. An
            exception is as one of `on_event`.
        on_refused: called with the payload and the reason of a message of `send` that became a dead letter,
            or (`spool_full`) that the device has no room for: nobody else keeps it then.
        on_peer: told when the circuit of a peer changes (see `peers`), in the thread of `on_event`; it is
            logged otherwise.
        handles: filters of the events that the service handles, announced from the first connection on; see
            `announce`.
        clean_session: whether the broker forgets the service when its connection ends: what comes meanwhile
            is lost to it, and what it announced ends.
        window: most messages without a receipt.
        receipt_timeout_s: seconds without a receipt, or an answer, after which a message is published again.
        client_id: the MQTT client id; two clients of one service need different ones.
        login: the service's user name and password file, for a broker that asks.

    Raises `SettingsError` for numbers out of their range (`RANGES`), `AnnouncementError` for `handles`.
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
        # First: what is wrong must leave no thread behind.
        _check(window=window, receipt_timeout_s=receipt_timeout_s, port=port)
        announced = None if handles is None else self._announcement(handles)
        self._on_delivery = on_delivery
        self._on_refused = on_refused
        self._handler = (
            InboxHandler(service, on_event, self._keep_reply, self._comes_again, has_expired)
            if on_event
            else None
        )
        self._window = OutboxWindow(window, receipt_timeout_s)
        self._states = OpenQuestions(
            state_topic(service), receipt_timeout_s, state.write_question, state.read_answer
        )
        self._handlers = OpenQuestions(
            handlers_topic(service), receipt_timeout_s, handlers.write_question, handlers.read_answer
        )
        self._on_peer = on_peer or self._log_peer
        self._asker = Asker(service, self._ask_handlers, self._tell_peer)
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
            # A session that is only away goes on to have its interest: its events wait.
            will=Will(interest_topic(service), b"", retain=True) if clean_session else None,
        )
        self._stopped = threading.Event()
        self._loop = ServiceLoop(
            service,
            address,
            profile if announced_by is None else DnsSd(announced_by, tuple(interfaces)),
            endpoint,
            self._window,
            questions,
            {replies: self._asker.take},
            self._deliver,
            self._tell_refused,
        )
        self._callbacks = CallbackThread(f"{service}-callbacks")
        if announced is not None:
            self._loop.announce(announced)
        self._loop.start()

    @property
    def waiting(self) -> int:
        """How many messages have no receipt yet."""
        return len(self._window)

    def put(self, event: Envelope | bytes, timeout_s: float = 30.0) -> None:
        """Send an event (or raw bytes); returns once the forwarder's spool has committed it.

        Raises:
            MessageTooLargeError: the broker drops what is larger than `MAX_MESSAGE_BYTES`.
            WindowFullError: the window did not get room within `timeout_s` seconds.
            ReceiptTimeoutError: nobody confirmed it within `timeout_s` seconds; it goes on being sent.
            StoreFullError: the device has no room for it; it was not kept.
            DeadLetteredError: it was kept as a dead letter, because it can never be delivered.
            ClientClosedError: the client was closed.
        """
        self._put(event, timeout_s, durable=True)

    def _put(self, event: Envelope | bytes, timeout_s: float, *, durable: bool) -> None:
        """Do what `put` says; without `durable` do not send it after the timeout.

        What was then not sent at all is a `RequestDroppedError`.
        """
        give_up = monotonic() + timeout_s
        message = self._add(event, timeout_s, awaited=True)
        receipt = self._window.wait_receipt(message, max(0.0, give_up - monotonic()))
        if receipt is None:
            if self._stopped.is_set():
                raise ClientClosedError(self.service)
            if not durable and not self._window.withdraw(message):
                raise RequestDroppedError(self.service, "there is no connection")
            raise ReceiptTimeoutError(self.service, timeout_s)
        if receipt.refused == SPOOL_FULL:
            raise StoreFullError(self.service)
        if receipt.refused is not None:
            raise DeadLetteredError(self.service, receipt.refused)

    def send(self, event: Envelope | bytes, timeout_s: float = 30.0) -> None:
        """Like `put`, but returns once the event stands in the window: for many at a time, see `flush`.

        The client goes on publishing it until the receipt comes; a refusal goes to `on_refused`. Bytes equal
        to a message that still waits are the same message. Raises `MessageTooLargeError`, `WindowFullError`
        and `ClientClosedError` as `put` does.
        """
        self._add(event, timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Wait until every message has its receipt, that is, until the spool has committed it.

        Raises:
            FlushTimeoutError: some had none after `timeout_s` seconds.
            ClientClosedError: the client was closed meanwhile.
        """
        if not self._window.wait_empty(timeout_s):
            if self._stopped.is_set():
                raise ClientClosedError(self.service)
            raise FlushTimeoutError(self.service, len(self._window), timeout_s)

    def state(self, key: str, timeout_s: float = 30.0) -> Envelope | None:
        """The newest state of `key` (`kind/namespace/name`) that the cloud sent.

        None when there is none, it is deleted, or no route leads it to this service.

        Newer ones come to the inbox: ask after subscribing (`on_event`), so that none is missed in between.

        Raises:
            StateTimeoutError: nobody answered within `timeout_s` seconds.
            ClientClosedError: the client was closed.
        """
        question = self._states.ask(key)
        self._loop.wake()
        answer = self._states.wait_answer(question, timeout_s)
        if answer is None:
            raise (
                ClientClosedError(self.service)
                if self._stopped.is_set()
                else StateTimeoutError(self.service, key, timeout_s)
            )
        return None if answer.json is None else parse_event(answer.json)

    def request(
        self,
        event: Envelope | bytes,
        timeout_s: float = TIMEOUT_S,
        *,
        durable: bool = True,
        expires: bool = False,
    ) -> Replies:
        """Send an event and wait for what all who handle it, here and in the cloud, reply to it.

        The replies are by participant. `not_awaited` is one whose circuit is open (see `peers`), `unhandled`
        one that handles such events no more; nobody at all gives no replies. The event waits for the
        connection, the window and room in the spool until the timeout. Without `durable` it is not kept: it
        is delivered at best effort, and never sent after the timeout. With `expires` nobody handles it after
        the timeout; the cloud judges that by its own clock, so the device's has to be right. Not from
        `on_event`, whose thread the answers of this service would need.

        Raises:
            RequestTimeoutError: somebody did not reply within `timeout_s` seconds; it has the replies. If its
                `missing` is None, the event was not sent: `put` what must not be lost.
            RequestDroppedError: without `durable`: until the timeout there was no connection or no room.
            NotAskingError: the contract does not let the service ask with such an event.
            TooManyRequestsError: so many requests are open as there may be.
            EnvelopeError: it is no event, or a request already.
            MessageTooLargeError, WindowFullError, StoreFullError, DeadLetteredError, ClientClosedError:
                as of `put`; no room means until the timeout.
        """
        asked = event if isinstance(event, Envelope) else parse_event(event)
        send = partial(self._send_request, durable=durable)
        return self._asker.request(asked, timeout_s, send, durable=durable, expires=expires)

    def peers(self) -> dict[str, Circuit]:
        """The circuit of each peer that was asked: whether requests wait for it."""
        return self._asker.peers()

    @property
    def ignored_replies(self) -> int:
        """How many replies did not count: malformed, of one that was not asked, or in another's name."""
        return self._asker.ignored_replies

    def announce(self, filters: Iterable[object]) -> None:
        """Say what the service handles: events that pass none of `filters` need not come.

        Filters are as a contract writes them; without any, only what is urgent comes. The announcement is
        made again over each connection. It lasts until `withdraw`, also while the service is away; with a
        clean session it ends with the connection. A service has one announcement, whichever client made it.

        Raises `AnnouncementError`.
        """
        self._loop.announce(self._announcement(filters))

    def withdraw(self) -> None:
        """Take back what was announced: everything comes again."""
        self._loop.announce(b"")

    def close(self) -> None:
        """End at once, without waiting for receipts (see `flush`)."""
        self._stopped.set()
        self._window.close()
        self._states.close()
        self._handlers.close()
        self._asker.close()
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
            # Of an event that was received: this service is the sender of what it sends on.
            event = sent_again(event)
        payload = event.json.encode("utf-8") if isinstance(event, Envelope) else event
        if len(payload) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(self.service, len(payload), MAX_MESSAGE_BYTES)
        message = self._window.add(payload, timeout_s, awaited=awaited)
        if message is None:
            if self._stopped.is_set():
                raise ClientClosedError(self.service)
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
                return  # the replies are late as well, and that error says more
            except WindowFullError as error:
                if durable:
                    raise
                raise RequestDroppedError(self.service, "the window has no room") from error
            except StoreFullError as error:
                # The last attempt has as much time for its receipt as the one before had to wait.
                if give_up - monotonic() < 2 * _ROOM_S:
                    if durable:
                        raise
                    raise RequestDroppedError(self.service, "the device's store is full") from error
            else:
                return
            if self._stopped.wait(_ROOM_S):
                raise ClientClosedError(self.service)

    def _ask_handlers(self, event: Envelope, timeout_s: float) -> HandlersAnswer | None:
        question = self._handlers.ask(event)
        self._loop.wake()
        answer = self._handlers.wait_answer(question, timeout_s)
        if answer is None and self._stopped.is_set():
            raise ClientClosedError(self.service)
        return answer

    def _comes_again(self, event: Envelope) -> bool:
        """Whether an event that failed does; when nobody says so, it is better to be silent."""
        answer = self._ask_handlers(event, _HANDLERS_S)
        return answer is None or answer.comes_again

    def _keep_reply(self, reply: Envelope) -> None:
        try:
            self.put(reply, _REPLY_S)
        except EdgeError as error:
            # The work is done, and must not be done again for the sake of telling.
            _log.warning("%s: a reply is lost: %s", self.service, error)

    def _log_peer(self, change: PeerChanged) -> None:
        _log.warning("%s: the circuit of %s is %s", self.service, change.peer, change.circuit)

    def _tell_peer(self, change: PeerChanged) -> None:
        # Somebody else's code: not under the asker's lock, nor in the thread that all connections hang on.
        self._callbacks.submit(partial(self._on_peer, change))

    def _deliver(self, received: Received) -> None:
        if self._on_delivery:
            name = digest(received.payload)

            def confirm(refused: str | None = None, /) -> None:
                self._loop.confirm(received, Receipt(name, refused))

            try:
                self._on_delivery(received.payload, confirm)
            except Exception:  # noqa: BLE001 -- whatever it is, it is theirs, and the client goes on
                _log.exception("%s: an event was not taken", self.service)
                self._loop.confirm(received, None)
        else:
            self._callbacks.submit(partial(self._handle_event, received))

    def _handle_event(self, received: Received) -> None:
        receipt = None
        try:
            receipt = self._handler.handle(received.payload) if self._handler else None
        finally:
            self._loop.confirm(received, receipt)

    def _tell_refused(self, payload: bytes, reason: str) -> None:
        if self._on_refused:
            self._callbacks.submit(partial(self._on_refused, payload, reason))
        else:
            _log.warning("%s: a message was refused: %s", self.service, reason)


def _check(**numbers: float) -> None:
    problems = []
    for name, value in numbers.items():
        try:
            RANGES[name].read(value)
        except ValueError:
            problems.append(SettingProblem(name, f"{value!r} is out of range", f"give {RANGES[name]}"))
    if problems:
        raise SettingsError(problems)
