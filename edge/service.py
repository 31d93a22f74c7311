"""What a service on the device uses to take part: a durable publisher, and a reader of its inbox.

    with ServiceClient("call-service", on_event=place_call) as client:
        client.put(write_event({...}, {...}))  # it is in the spool when this returns

The local broker's own acknowledgement says little: a power cut takes what it holds. So a message counts as
sent when the forwarder's receipt says that the spool has committed it, and is published again until then.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from edge.callbacks import CallbackThread
from edge.downlink.open_questions import OpenQuestions
from edge.downlink.questions import QuestionError, read_answer
from edge.errors import (
    ClientClosedError,
    DeadLetteredError,
    FlushTimeoutError,
    MessageTooLargeError,
    ReceiptTimeoutError,
    RefusedError,
    StateTimeoutError,
    StoreFullError,
    WindowFullError,
)
from edge.link import Backoff
from edge.local_link import link_to_broker
from edge.mailbox import Mailbox
from edge.messages import Connected, Disconnected, LinkName, Message, Received, Stop
from edge.mqtt import Connection, Endpoint, Login, PinnedCertificate, Will
from edge.mqtt.address import BrokerAddress
from edge.outbox_window import OutboxMessage, OutboxWindow
from eventplane.announcement import new_announcement, write_announcement
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.receipts import SPOOL_FULL, Receipt, ReceiptError, digest, read_receipts, write_receipts
from eventplane.topics import interest_topic, local_topic, receipt_topic, state_answer_topic, state_topic

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 * 1024
"""Largest message that the home's broker takes, bytes: `message_size_limit` of our Mosquitto profile. What is
larger is dropped in silence: no receipt would ever come."""

_KEEPALIVE_S = 30
_CONNECT_TIMEOUT_S = 5.0
_BACKOFF = Backoff(first_s=0.1, max_s=2.0)
_CLOSE_S = 1.0

EventHandler = Callable[[Envelope], None]
DeliveryHandler = Callable[[bytes, Callable[[], None]], None]
RefusalHandler = Callable[[bytes, str], None]


@dataclass(frozen=True, slots=True)
class _Wake:
    """Something new stands in the window."""


@dataclass(frozen=True, slots=True)
class _Announce:
    """Let the broker keep `payload` as what the service handles; an empty one ends that."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class _Handled:
    """The handler is through with `received`; `receipt` is None when it failed and shall get it again."""

    received: Received
    receipt: Receipt | None


class ServiceClient:
    """A durable client for the on-device service called `service`, on the home's broker.

    Args:
        service: the participant's name in the contract.
        host, port: the home's broker; the path of a Unix socket as host has no port.
        profile: Mosquitto's profile, which says where the broker is, also when it changes. Host and port then
            count only until it could be read.
        certificate: the certificate of a broker with TLS, a PEM file: no other is trusted.
        on_event: called with every event of the inbox, one after the other, in a thread of its own; at least
            once each. When it returns, the receipt goes out. It raises `RefusedError` for an event that can
            never be handled; after any other exception the event comes again if the contract gives the inbox
            `receipts` (otherwise the broker's acknowledgement has ended its delivery).
        on_delivery: in place of `on_event`, for a reader with several events in hand: called with the payload
            of each message of the inbox and a function that confirms it, which any thread may call, once it
            is dealt with. Called by the client's own thread: it must not wait; a payload may be no event.
        on_refused: called with the payload and the reason of a message of `send` that became a dead letter,
            or (`spool_full`) that the device has no room for: nobody else keeps it then.
        handles: filters of the events that the service handles, announced from the first connection on; see
            `announce`.
        clean_session: whether the broker forgets the service when its connection ends: what comes meanwhile
            is lost to it, and what it announced ends.
        window: most messages without a receipt.
        receipt_timeout_s: seconds without a receipt, or an answer, after which a message is published again.
        client_id: the MQTT client id; two clients of one service need different ones.
        login: the service's user name and password file, for a broker that asks.
    """

    def __init__(
        self,
        service: str,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        profile: Path | None = None,
        certificate: Path | None = None,
        on_event: EventHandler | None = None,
        on_delivery: DeliveryHandler | None = None,
        on_refused: RefusalHandler | None = None,
        handles: Iterable[object] | None = None,
        clean_session: bool = False,
        window: int = 200,
        receipt_timeout_s: float = 5.0,
        client_id: str | None = None,
        login: Login | None = None,
    ) -> None:
        self.service = service
        self._on_event = on_event
        self._on_delivery = on_delivery
        self._on_refused = on_refused
        self._outbox = local_topic(service, "outbox")
        self._inbox = local_topic(service, "inbox")
        self._clean_session = clean_session
        self._announced = None if handles is None else self._announcement(handles)
        self._window = OutboxWindow(window, receipt_timeout_s)
        self._questions = OpenQuestions(receipt_timeout_s)
        self._mailbox: Mailbox[Message | _Wake | _Announce | _Handled] = Mailbox()
        self._early: deque[Received] = deque()
        self._callbacks = CallbackThread(f"{service}-callbacks")
        self._link = link_to_broker(
            BrokerAddress(host, port, PinnedCertificate(certificate) if certificate else None),
            profile,
            partial(self._dial, client_id, login),
            _BACKOFF,
            _CONNECT_TIMEOUT_S,
            has_login=login is not None,
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=service, daemon=True)
        self._thread.start()

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
        give_up = monotonic() + timeout_s
        message = self._add(event, timeout_s, awaited=True)
        receipt = self._window.wait_receipt(message, max(0.0, give_up - monotonic()))
        if receipt is None:
            raise (
                ClientClosedError(self.service)
                if self._stopping
                else ReceiptTimeoutError(self.service, timeout_s)
            )
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
            if self._stopping:
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
        question = self._questions.ask(key)
        self._mailbox.put(_Wake())
        answer = self._questions.wait_answer(question, timeout_s)
        if answer is None:
            raise (
                ClientClosedError(self.service)
                if self._stopping
                else StateTimeoutError(self.service, key, timeout_s)
            )
        return None if answer.json is None else parse_event(answer.json)

    def announce(self, filters: Iterable[object]) -> None:
        """Say what the service handles: events that pass none of `filters` need not come.

        Filters are as a contract writes them; without any, only what is urgent comes. The announcement is
        made again over each connection. It lasts until `withdraw`, also while the service is away; with a
        clean session it ends with the connection. A service has one announcement, whichever client made it.

        Raises `AnnouncementError`.
        """
        self._mailbox.put(_Announce(self._announcement(filters)))

    def withdraw(self) -> None:
        """Take back what was announced: everything comes again."""
        self._mailbox.put(_Announce(b""))

    def close(self) -> None:
        """End at once, without waiting for receipts (see `flush`)."""
        self._stopping = True
        self._window.close()
        self._questions.close()
        self._mailbox.put(Stop())
        self._thread.join(2 * _CLOSE_S)
        self._callbacks.close(_CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, event: Envelope | bytes, timeout_s: float, *, awaited: bool = False) -> OutboxMessage:
        payload = event.json.encode("utf-8") if isinstance(event, Envelope) else event
        if len(payload) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(self.service, len(payload), MAX_MESSAGE_BYTES)
        message = self._window.add(payload, timeout_s, awaited=awaited)
        if message is None:
            if self._stopping:
                raise ClientClosedError(self.service)
            raise WindowFullError(self.service, len(self._window), timeout_s)
        self._mailbox.put(_Wake())
        return message

    def _dial(
        self, client_id: str | None, login: Login | None, address: BrokerAddress, generation: int
    ) -> Connection:
        subscriptions = [receipt_topic(self.service, "outbox"), state_answer_topic(self.service)]
        if self._on_event or self._on_delivery:
            subscriptions.append(self._inbox)
        endpoint = Endpoint(
            host=address.host,
            port=address.port,
            client_id=client_id or f"eventplane-{self.service}",
            clean_session=self._clean_session,
            keepalive_s=_KEEPALIVE_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            subscriptions=tuple(subscriptions),
            tls=address.tls,
            login=login,
            # A session that is only away goes on to have its interest: its events wait.
            will=Will(interest_topic(self.service), b"", retain=True) if self._clean_session else None,
        )
        return Connection(endpoint, LinkName.LOCAL, generation, self._mailbox.put)

    def _run(self) -> None:
        while not self._stopping:
            now = monotonic()
            self._link.tick(now)
            if self._link.up:
                for payload in self._window.due(now):
                    self._link.publish(self._outbox, payload)
                for payload in self._questions.due(now):
                    self._link.publish(state_topic(self.service), payload)
            for message in self._mailbox.wait(self._patience()):
                self._take(message)
        for message in self._mailbox.wait(0):
            if isinstance(message, _Handled | _Announce):  # what was said before the end still goes out
                self._take(message)
        if self._clean_session and self._announced and self._link.up:
            self._announce(b"")  # after a farewell the broker publishes no will
        self._link.close(_CLOSE_S)

    def _patience(self) -> float | None:
        if not self._link.up:
            due = [self._link.deadline()]
        else:
            due = [self._window.deadline(), self._questions.deadline()]
        deadline = min((each for each in due if each is not None), default=None)
        return None if deadline is None else max(0.0, deadline - monotonic())

    def _take(self, message: Message | _Wake | _Announce | _Handled) -> None:
        match message:
            case Received():
                self._take_received(message)
            case _Announce(payload):
                self._announced = payload
                if self._link.up:
                    self._announce(payload)
            case _Handled(received, receipt):
                if receipt and self._link.up:
                    self._link.publish(receipt_topic(self.service, "inbox"), write_receipts([receipt]))
                self._link.acknowledge(received.generation, received.mid)
            case Connected(_, generation):
                if self._link.connected(generation, monotonic()):
                    self._begin()
            case Disconnected(_, generation, reason):
                if self._link.disconnected(generation, reason, monotonic()):
                    self._early.clear()  # they come again
            case _:
                pass  # a Stop or a wake-up has done its work; the broker's PUBACK proves nothing

    def _take_received(self, message: Received) -> None:
        if message.topic == self._inbox:
            self._early.append(message)
            self._take_early()
        elif message.topic == state_answer_topic(self.service):
            self._take_answer(message)
        else:
            self._take_receipts(message)

    def _begin(self) -> None:
        """A connection stands: the broker and the forwarder may have forgotten what was said over another."""
        if self._announced is not None:
            self._announce(self._announced)
        self._window.resend()
        self._questions.resend()
        self._take_early()

    def _announcement(self, filters: Iterable[object]) -> bytes:
        return write_announcement(new_announcement(self.service, filters))

    def _announce(self, payload: bytes) -> None:
        self._link.publish(interest_topic(self.service), payload, retain=True)

    def _take_early(self) -> None:
        """A lasting session delivers before the connection stands; until then no receipt could go out."""
        while self._early and self._link.up:
            message = self._early.popleft()
            if self._on_delivery:
                self._on_delivery(message.payload, partial(self._confirm, message))
            else:
                self._callbacks.submit(partial(self._handle_event, message))

    def _take_answer(self, message: Received) -> None:
        self._link.acknowledge(message.generation, message.mid)
        try:
            self._questions.answered(read_answer(message.payload))
        except QuestionError as error:
            _log.warning("%s: an answer ignored: %s", self.service, error)

    def _take_receipts(self, message: Received) -> None:
        self._link.acknowledge(message.generation, message.mid)
        try:
            receipts = read_receipts(message.payload)
        except ReceiptError as error:
            _log.warning("%s: receipts ignored: %s", self.service, error)
            return
        for receipt in receipts:
            confirmed = self._window.confirm(receipt)
            if confirmed is None or receipt.refused is None or confirmed.awaited:
                continue
            if self._on_refused:
                self._callbacks.submit(partial(self._on_refused, confirmed.payload, receipt.refused))
            else:
                _log.warning("%s: a message was refused: %s", self.service, receipt.refused)

    def _confirm(self, received: Received) -> None:
        self._mailbox.put(_Handled(received, Receipt(digest(received.payload))))

    def _handle_event(self, received: Received) -> None:
        receipt = None
        try:
            receipt = self._receipt_after(received.payload)
        finally:
            self._mailbox.put(_Handled(received, receipt))

    def _receipt_after(self, payload: bytes) -> Receipt:
        try:
            event = parse_event(payload)
            if self._on_event:
                self._on_event(event)
        except (EnvelopeError, RefusedError) as error:
            return Receipt(digest(payload), error.reason)
        return Receipt(digest(payload))
