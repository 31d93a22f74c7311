"""The transport of a service on a device: the home's broker, and the forwarder's receipts behind it.

The broker's own acknowledgement proves little: a power cut loses what the broker has. So a message counts as
sent when the forwarder's receipt confirms that the spool has committed it, and is published again until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from eventplane.conversation.messages import Replier
from eventplane.conversation.open_requests import Circuit, CircuitChanged, PeerListener, Replies
from eventplane.conversation.questions import (
    HandlersAnswer,
    StateAnswer,
    read_handlers_answer,
    read_state_answer,
    write_handlers_question,
    write_state_question,
)
from eventplane.envelope import Envelope, parse_event
from eventplane.expiry import is_expired_on_device
from eventplane.interest.announcement import Announcement, write_announcement
from eventplane.limits import MAX_RECEIVES
from eventplane.reasons import Outcome, Reason
from eventplane.receipts import SPOOL_FULL, Receipt, digest
from eventplane.topics import (
    handlers_answer_topic,
    handlers_topic,
    local_topic,
    receipt_topic,
    state_answer_topic,
    state_topic,
)
from eventplane_client.asker import Asker, Expected
from eventplane_client.errors import (
    ClientSettingsError,
    ClosedError,
    FlushTimeoutError,
    MessageTooLargeError,
    NoRoomError,
    NotAskingError,
    NotRegisteredError,
    ReceiptTimeoutError,
    RefusedError,
    RequestDroppedError,
    StateTimeoutError,
    UnroutedError,
    WindowFullError,
)
from eventplane_client.mqtt_loop import CLOSE_S, CallbackThread, ServiceLoop
from eventplane_client.open_questions import OpenQuestions
from eventplane_client.outbox_window import OutboxMessage, OutboxWindow
from eventplane_client.ports import Message
from eventplane_client.system import SYSTEM, System
from eventplane_mqtt import Endpoint, Login, PinnedCertificate
from eventplane_mqtt.endpoint import BrokerAddress, DiscoveryError
from eventplane_mqtt.mailbox import Received
from eventplane_mqtt.reconnection import DnsSd

_log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 1883

MAX_MESSAGE_BYTES: Final = 256 * 1024
"""Largest message that is sent, bytes. An event is at most 96 KiB; over a megabyte the home's broker ends the
sender's connection."""

_KEEPALIVE_S: Final = 30
_CONNECT_TIMEOUT_S: Final = 5.0

_ROOM_S: Final = 0.5
"""Delay before a request that the spool had no room for is sent again, seconds."""

RefusalHandler = Callable[[bytes, str], None]


@dataclass(eq=False, slots=True)
class _Held:
    """One message of the inbox that is not confirmed, with each copy of it that was received."""

    payload: bytes
    copies: list[Received] = field(default_factory=list)
    attempt: int = 0
    first_at: float = 0.0
    is_in_hand: bool = False
    visible_at: float = 0.0


class MqttInterest:
    """Announces to the forwarder what the service handles; repeated over each connection."""

    def __init__(self, loop: ServiceLoop) -> None:
        self._loop = loop

    def announce(self, announcement: Announcement) -> None:
        self._loop.announce(write_announcement(announcement))

    def withdraw(self) -> None:
        self._loop.announce(b"")

    def close(self) -> None:
        pass  # the broker keeps the session of the service, and the announcement belongs to it


class MqttTransport:
    """Takes part as the service `participant` over the broker at `host` and `port`.

    Nothing is confirmed before it is acknowledged here, so what is in hand at a crash comes again: from the
    broker, and from the forwarder where the inbox has `receipts`. What is released waits in this process.

    Args:
        participant: the service's name in the contract.
        host, port: the home's broker; a host that is the path of a Unix socket has no port.
        max_receives: deliveries to a failing handler before a dead letter in any case.
        profile: Mosquitto's profile. The client connects where the profile leads and follows a change of it;
            host and port count only until the profile could be read.
        announced_by: find the broker by DNS-SD instead: the one that the thing of this name announces, '' for
            any. An announcement is not authenticated. Requires the package zeroconf.
        certificate: the certificate of a broker with TLS, a PEM file: no other is trusted. A broker that is
            found by DNS-SD has to present it.
        login: the service's user name and password file, for a broker that requires them.
        on_refused: called with the payload and the reason of a message of `send` that became a dead letter,
            or (`spool_full`) that the device has no room for: then nothing else stores it.
        on_peer: called when the circuit of a peer changes (see `Client.peers`).
        window: most messages without a receipt.
        receipt_timeout_s: seconds without a receipt, or an answer, after which a message is published again.
        client_id: the MQTT client id; two clients of one service need different ones.

    A thread of its own calls `on_refused` and `on_peer`. Raises `ClientSettingsError`.
    """

    visibility_s = None
    keeps_refused = True
    receipts = None

    def __init__(
        self,
        participant: str,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        max_receives: int = MAX_RECEIVES,
        profile: Path | None = None,
        announced_by: str | None = None,
        certificate: Path | None = None,
        login: Login | None = None,
        on_refused: RefusalHandler | None = None,
        on_peer: PeerListener | None = None,
        window: int = 200,
        receipt_timeout_s: float = 5.0,
        client_id: str | None = None,
        system: System = SYSTEM,
    ) -> None:
        self.max_receives = max_receives
        self._participant = participant
        self._on_refused = on_refused
        self._on_peer = on_peer
        self._changed = system.condition()
        self._held: dict[bytes, _Held] = {}
        self._closed = system.event()
        self._system = system
        self._window = OutboxWindow(window, receipt_timeout_s, system)
        self._states = OpenQuestions(
            state_topic(participant), receipt_timeout_s, write_state_question, read_state_answer, system
        )
        self._handlers = OpenQuestions(
            handlers_topic(participant),
            receipt_timeout_s,
            write_handlers_question,
            read_handlers_answer,
            system,
        )
        self._asker = Asker(participant, self._report_peer, system)
        replies = local_topic(participant, "replies")
        questions: dict[str, OpenQuestions[str, StateAnswer] | OpenQuestions[Envelope, HandlersAnswer]] = {
            state_answer_topic(participant): self._states,
            handlers_answer_topic(participant): self._handlers,
        }
        # The inbox from the first connection on, whether the program reads it already or not: the broker's
        # session then keeps what comes before it does, and while it is away.
        topics = (
            receipt_topic(participant, "outbox"), *questions, replies, local_topic(participant, "inbox")
        )  # fmt: skip
        address = BrokerAddress(host, port, PinnedCertificate(certificate) if certificate else None)
        endpoint = Endpoint(
            host=host,
            port=port,
            client_id=client_id or f"eventplane-{participant}",
            clean_session=False,
            keepalive_s=_KEEPALIVE_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            subscriptions=topics,
            login=login,
        )
        try:
            self._loop = ServiceLoop(
                participant,
                address,
                profile if announced_by is None else DnsSd(announced_by),
                endpoint,
                self._window,
                questions,
                {replies: self._asker.take},
                self._deliver,
                self._report_refused,
                system,
            )
        except DiscoveryError as error:
            raise ClientSettingsError("transport", str(error), "or name the broker's address") from error
        self.interest = MqttInterest(self._loop)
        self._callbacks = CallbackThread(f"{participant}-callbacks")
        self._loop.start()

    def has_expired(self, event: Envelope) -> bool:
        """Return whether an event has expired by the uptime of this device."""
        return is_expired_on_device(event, *self._system.uptime())

    @property
    def up(self) -> bool:
        """True if there is a connection."""
        return self._loop.up

    @property
    def waiting(self) -> int:
        """The number of messages without a receipt."""
        return len(self._window)

    def put(self, event: Envelope | bytes, timeout_s: float, *, durable: bool = True) -> None:
        """Send an event, or raw bytes; with `durable` return once the forwarder's spool has committed it.

        Raises:
            MessageTooLargeError: it is larger than `MAX_MESSAGE_BYTES`, which the broker would drop.
            WindowFullError: the window did not get room within `timeout_s` seconds.
            ReceiptTimeoutError: no receipt came within `timeout_s` seconds; the client goes on sending it.
            NoRoomError: the device has no room for it; it is not stored.
            RefusedError: it was stored as a dead letter, because it can never be delivered.
            ClosedError: the client was closed.
        """
        if durable:
            self._put(event, timeout_s, durable=True)
        else:
            self.send(event, timeout_s)

    def send(self, event: Envelope | bytes, timeout_s: float = 30.0) -> None:
        """Return once the event is in the window: for many at a time, see `flush`.

        The client publishes it until the receipt comes; a refusal goes to `on_refused`. Bytes equal to those
        of a message that still waits are the same message. Raises `MessageTooLargeError`, `WindowFullError`
        and `ClosedError` as `put` does.
        """
        self._add(event, timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Wait until the spool has committed, or refused, every message.

        Raises:
            FlushTimeoutError: some had no receipt after `timeout_s` seconds.
            ClosedError: the client was closed meanwhile.
        """
        if not self._window.wait_empty(timeout_s):
            if self._closed.is_set():
                raise ClosedError(self._participant)
            raise FlushTimeoutError(self._participant, timeout_s, len(self._window))

    def state(self, key: str, timeout_s: float) -> Envelope | None:
        """Return the newest state of `key`; see `Client.state`."""
        question = self._states.ask(key)
        self._loop.wake()
        answer = self._states.wait_answer(question, timeout_s)
        if answer is None:
            if self._closed.is_set():
                raise ClosedError(self._participant)
            raise StateTimeoutError(self._participant, key, timeout_s)
        if answer.problem is not None:
            raise NotAskingError(self._participant, answer.problem)
        return None if answer.json is None else parse_event(answer.json)

    def request(
        self, event: Envelope, timeout_s: float, *, durable: bool = True, expires: bool = False
    ) -> Replies:
        """Return the replies to `event`; see `Client.request`.

        The event waits for the connection, the window and room in the spool until the timeout. Without
        `durable` it is delivered at best effort, and never sent after the timeout.
        """
        send = partial(self._send_request, durable=durable)
        return self._asker.ask(
            event, timeout_s, send, self._find, self._find, durable=durable, expires=expires
        )

    def peers(self) -> dict[str, Circuit]:
        return self._asker.peers()

    @property
    def ignored_replies(self) -> int:
        return self._asker.ignored_replies

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        give_up = self._system.monotonic() + timeout_s
        with self._changed:
            while not self._closed.is_set():
                now = self._system.monotonic()
                waiting = [each for each in self._held.values() if not each.is_in_hand]
                ready = [each for each in waiting if each.visible_at <= now][:most]
                if ready or now >= give_up:
                    return [self._hand_over(each) for each in ready]
                self._changed.wait(min([give_up, *(each.visible_at for each in waiting)]) - now)
        raise ClosedError(self._participant)

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        with self._changed:
            for message in messages:
                if held := self._held.pop(message.body, None):
                    for copy in held.copies:
                        self._loop.confirm(copy, Receipt(digest(copy.payload), refused))
        return []

    def release(self, message: Message, wait_s: float) -> None:
        with self._changed:
            if held := self._held.get(message.body):
                held.is_in_hand = False
                held.visible_at = self._system.monotonic() + wait_s
                self._changed.notify_all()

    def extend(self, messages: Sequence[Message]) -> None:
        pass  # what is not confirmed may come again, and is known then

    def close(self) -> None:
        """Close at once, without waiting for receipts (see `flush`)."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._window.close()
        self._states.close()
        self._handlers.close()
        self._asker.close()
        self._loop.close()
        self._callbacks.close(CLOSE_S)

    def _deliver(self, received: Received) -> None:
        """Called by the loop's thread with each message of the inbox."""
        with self._changed:
            held = self._held.setdefault(received.payload, _Held(received.payload))
            held.copies.append(received)
            self._changed.notify_all()

    def _hand_over(self, held: _Held) -> Message:
        now = self._system.monotonic()
        held.is_in_hand = True
        held.attempt += 1
        if held.attempt == 1:
            held.first_at = now
        return Message(held.payload, held.attempt, None, age_s=now - held.first_at)

    def _put(self, event: Envelope | bytes, timeout_s: float, *, durable: bool) -> None:
        """Do what `put` does; without `durable` stop sending the event after the timeout.

        Raises `RequestDroppedError` for one that was then not sent at all.
        """
        give_up = self._system.monotonic() + timeout_s
        message = self._add(event, timeout_s, awaited=True)
        receipt = self._window.wait_receipt(message, max(0.0, give_up - self._system.monotonic()))
        if receipt is None:
            if self._closed.is_set():
                raise ClosedError(self._participant)
            if not durable and not self._window.withdraw(message):
                raise RequestDroppedError(self._participant, "there is no connection")
            raise ReceiptTimeoutError(self._participant, timeout_s)
        if receipt.refused == SPOOL_FULL:
            raise NoRoomError(self._participant)
        if receipt.refused == Reason.UNKNOWN_CHANNEL:
            problem = "there is no such participant on this device"
            raise NotRegisteredError(self._participant, problem, "correct the name or the contract")
        if receipt.refused is not None:
            if receipt.refused == Outcome.UNROUTED:
                raise UnroutedError(self._participant, "no route of the device takes it")
            raise RefusedError(self._participant, receipt.refused, "it was kept as a dead letter")

    def _add(self, event: Envelope | bytes, timeout_s: float, *, awaited: bool = False) -> OutboxMessage:
        payload = event.json.encode("utf-8") if isinstance(event, Envelope) else event
        if len(payload) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(self._participant, len(payload), MAX_MESSAGE_BYTES)
        message = self._window.add(payload, timeout_s, awaited=awaited)
        if message is None:
            if self._closed.is_set():
                raise ClosedError(self._participant)
            raise WindowFullError(self._participant, timeout_s, len(self._window))
        self._loop.wake()
        return message

    def _send_request(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        """Put `event`, again while the spool has no room for it, until the timeout."""
        give_up = self._system.monotonic() + timeout_s
        while True:
            try:
                self._put(event, max(0.0, give_up - self._system.monotonic()), durable=durable)
            except ReceiptTimeoutError:
                return  # the replies are late too, and that error says more
            except WindowFullError as error:
                if durable:
                    raise
                raise RequestDroppedError(self._participant, "the window has no room") from error
            except NoRoomError as error:
                # The last attempt has as much time for its receipt as the one before had to wait.
                if give_up - self._system.monotonic() < 2 * _ROOM_S:
                    if durable:
                        raise
                    raise RequestDroppedError(self._participant, "the device has no room for it") from error
            else:
                return
            if self._closed.wait(_ROOM_S):
                raise ClosedError(self._participant)

    def _ask_handlers(self, event: Envelope, timeout_s: float) -> HandlersAnswer | None:
        question = self._handlers.ask(event)
        self._loop.wake()
        answer = self._handlers.wait_answer(question, timeout_s)
        if answer is None and self._closed.is_set():
            raise ClosedError(self._participant)
        return answer

    def _find(self, event: Envelope, timeout_s: float) -> Expected | None:
        answer = self._ask_handlers(event, timeout_s)
        if answer is None:
            return None
        if answer.problem is not None:
            raise NotAskingError(self._participant, answer.problem)
        announced = {Replier(name): announcement for name, announcement in answer.announced.items()}
        return Expected([Replier(each) for each in answer.handlers], announced, answer.thing)

    def _report_peer(self, change: CircuitChanged) -> None:
        # The service's code runs neither under the asker's lock nor in the thread of the connection.
        if self._on_peer:
            self._callbacks.submit(partial(self._on_peer, change))
        else:
            text = "%s: the circuit of %s is %s"
            _log.warning(text, self._participant, change.peer, change.circuit)

    def _report_refused(self, payload: bytes, reason: str) -> None:
        if self._on_refused:
            self._callbacks.submit(partial(self._on_refused, payload, reason))
        else:
            _log.warning("%s: a message was refused: %s", self._participant, reason)
