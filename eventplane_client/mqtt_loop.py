"""The thread of a service client: it connects the broker with the window, the questions and the handlers."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from eventplane.conversation.questions import QuestionError
from eventplane.receipts import Receipt, ReceiptError, digest, read_receipts, write_receipts
from eventplane.topics import interest_topic, local_topic, receipt_topic
from eventplane.values import random_share
from eventplane_client.open_questions import OpenQuestions
from eventplane_client.outbox_window import OutboxWindow
from eventplane_client.system import System
from eventplane_mqtt import Connection, Endpoint
from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.mailbox import Connected, Disconnected, LinkName, Mailbox, Message, Received
from eventplane_mqtt.reconnection import Backoff, DnsSd, link_to_broker

_log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""Timeout of DISCONNECT and of the last messages before it, seconds."""


@dataclass(frozen=True, slots=True)
class _Wake:
    """There is something new to send, or the thread ends."""


@dataclass(frozen=True, slots=True)
class _Announce:
    """The announcement to retain at the broker from now on; empty to withdraw it."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class _Handled:
    """The handler is done with `received`; `receipt` is None if it failed and should get it again."""

    received: Received
    receipt: Receipt | None


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
        """Run what was submitted for up to `timeout_s` seconds; log how many jobs did not end by then."""
        self._jobs.put(None)
        if self._thread is threading.current_thread():
            return  # a job closes its own thread, which still runs the others
        self._thread.join(timeout_s)
        self._closed = True
        if self._thread.is_alive() and (left := self._jobs.qsize()):  # of which one is the None, one runs
            text = "%s: %d callback(s) did not end in %g s: flush before close, and let callbacks return soon"
            _log.warning(text, self._thread.name, left, timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            try:
                job()
            except Exception:  # noqa: BLE001 -- the service's code may raise anything
                _log.exception("%s: a callback failed", self._thread.name)


class ServiceLoop:
    """Sends and receives for `service` over one broker until it is closed.

    Args:
        address: the broker's, unless `found_by` (a profile of Mosquitto, or DNS-SD) leads elsewhere.
        endpoint: how to connect, apart from the address.
        readers: called with the messages on their topics, which are confirmed by a receipt.
        on_delivery: called with each message of the inbox, which is acknowledged once it is `confirm`ed.
        on_refused: called with a message of the `window` that was refused and that nobody waits for.

    This thread calls all of them; they must not wait.
    """

    def __init__(
        self,
        service: str,
        address: BrokerAddress,
        found_by: Path | DnsSd | None,
        endpoint: Endpoint,
        window: OutboxWindow,
        questions: Mapping[str, OpenQuestions[Any, Any]],
        readers: Mapping[str, Callable[[bytes], object]],
        on_delivery: Callable[[Received], None],
        on_refused: Callable[[bytes, str], None],
        system: System,
    ) -> None:
        self._service = service
        self._monotonic = system.monotonic
        self._window = window
        self._questions = questions
        self._readers = readers
        self._on_delivery = on_delivery
        self._on_refused = on_refused
        self._outbox = local_topic(service, "outbox")
        self._inbox = local_topic(service, "inbox")
        self._mailbox: Mailbox[Message | _Wake | _Announce | _Handled] = Mailbox()
        self._early: deque[Received] = deque()
        self._announced: bytes | None = None
        self._link = link_to_broker(
            address,
            found_by,
            partial(self._dial, endpoint),
            Backoff(first_s=0.1, max_s=2.0, share=partial(random_share, system.random_bytes)),
            endpoint.connect_timeout_s,
            has_login=endpoint.login is not None,
            wake=self.wake,
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=service, daemon=True)

    @property
    def up(self) -> bool:
        """True if the connection stands."""
        return self._link.up

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread look for something to send. Thread-safe."""
        self._mailbox.put(_Wake())

    def announce(self, payload: bytes) -> None:
        """Retain the announcement at the broker, over each connection; empty to withdraw it."""
        self._mailbox.put(_Announce(payload))

    def confirm(self, received: Received, receipt: Receipt | None) -> None:
        """End the delivery of a message of the inbox; without a `receipt` it failed. Thread-safe."""
        self._mailbox.put(_Handled(received, receipt))

    def close(self) -> None:
        """Stop the thread; it still sends earlier confirmations and announcements."""
        self._stopping = True
        self.wake()
        self._thread.join(2 * CLOSE_S)

    def _dial(self, endpoint: Endpoint, address: BrokerAddress, generation: int) -> Connection:
        there = replace(endpoint, host=address.host, port=address.port, tls=address.tls)
        return Connection(there, LinkName.LOCAL, generation, self._mailbox.put)

    def _run(self) -> None:
        try:
            while not self._stopping:
                now = self._monotonic()
                self._link.tick(now)
                if self._link.up:
                    self._send(now)
                for message in self._mailbox.wait(self._timeout_s()):
                    self._take(message)
            for message in self._mailbox.wait(0):
                if isinstance(message, _Handled | _Announce):
                    self._take(message)
        finally:
            # Also after a defect: the broker must not go on delivering to a connection that is not read.
            self._link.close(CLOSE_S)

    def _send(self, now: float) -> None:
        for payload in self._window.due(now):
            self._link.connection.publish(self._outbox, payload)
        for questions in self._questions.values():
            for payload in questions.due(now):
                self._link.connection.publish(questions.topic, payload)

    def _timeout_s(self) -> float | None:
        if not self._link.up:
            due = [self._link.deadline()]
        else:
            due = [self._window.deadline(), *(each.deadline() for each in self._questions.values())]
        deadline = min((each for each in due if each is not None), default=None)
        return None if deadline is None else max(0.0, deadline - self._monotonic())

    def _take(self, message: Message | _Wake | _Announce | _Handled) -> None:
        match message:
            case Received() if message.topic == self._inbox:
                self._early.append(message)
                self._take_early()
            case Received():
                self._link.acknowledge(message.generation, message.mid)
                self._read(message)
            case _Announce(payload):
                self._announced = payload
                if self._link.up:
                    self._retain(payload)
            case _Handled(received, receipt):
                if receipt and self._link.up:
                    topic = receipt_topic(self._service, "inbox")
                    self._link.connection.publish(topic, write_receipts([receipt]))
                self._link.acknowledge(received.generation, received.mid)
            case Connected(_, generation):
                self._begin(generation)
            case Disconnected(_, generation, reason):
                if self._link.disconnected(generation, reason, self._monotonic()):
                    self._early.clear()  # the broker sends them again
            case _:
                pass  # a wake-up has ended the wait; the broker's PUBACK proves nothing

    def _begin(self, generation: int) -> None:
        """Send everything pending again: broker and forwarder may have forgotten an earlier connection."""
        if not self._link.connected(generation, self._monotonic()):
            return
        if self._announced is not None:
            self._retain(self._announced)
        self._window.resend()
        for questions in self._questions.values():
            questions.resend()
        self._take_early()

    def _retain(self, announcement: bytes) -> None:
        self._link.connection.publish(interest_topic(self._service), announcement, retain=True)

    def _take_early(self) -> None:
        """Deliver what came before SUBACK, as in a persistent session; until then no receipt can be sent."""
        while self._early and self._link.up:
            self._on_delivery(self._early.popleft())

    def _read(self, message: Received) -> None:
        questions, reader = self._questions.get(message.topic), self._readers.get(message.topic)
        try:
            if questions is not None:
                questions.take_answer(message.payload)
            elif reader is not None:
                reader(message.payload)
                self._confirm(message)
            else:
                self._take_receipts(read_receipts(message.payload))
        except QuestionError as error:
            _log.warning("%s: ignored an answer: %s", self._service, error)
        except ReceiptError as error:
            _log.warning("%s: ignored receipts: %s", self._service, error)

    def _confirm(self, message: Received) -> None:
        if self._link.up:  # else the broker sends it again
            receipt = write_receipts([Receipt(digest(message.payload))])
            self._link.connection.publish(f"{message.topic}/receipts", receipt)

    def _take_receipts(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            confirmed = self._window.confirm(receipt)
            if confirmed is None or receipt.refused is None:
                continue
            if confirmed.left or not confirmed.awaited:
                self._on_refused(confirmed.payload, receipt.refused)
