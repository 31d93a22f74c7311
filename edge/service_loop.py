"""The thread of a service client: between its broker, its window, its questions and its handlers."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from edge.link import Backoff, DnsSd, link_to_broker
from edge.mailbox import Connected, Disconnected, LinkName, Mailbox, Message, Received, Stop
from edge.mqtt import Connection, Endpoint
from edge.mqtt.endpoint import BrokerAddress
from edge.outbox_window import OutboxWindow
from edge.questions.open_questions import OpenQuestions
from edge.questions.wire import QuestionError
from eventplane.receipts import Receipt, ReceiptError, digest, read_receipts, write_receipts
from eventplane.topics import interest_topic, local_topic, receipt_topic

_log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""How long saying goodbye may take, seconds."""

_BACKOFF = Backoff(first_s=0.1, max_s=2.0)


@dataclass(frozen=True, slots=True)
class _Wake:
    """Something new is to be sent."""


@dataclass(frozen=True, slots=True)
class _Announce:
    """What the service handles, from now on and over each connection; empty to take it back."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class _Handled:
    """The handler is through with `received`; `receipt` is None when it failed and shall get it again."""

    received: Received
    receipt: Receipt | None


class ServiceLoop:
    """Serves `service` over a broker until it is closed.

    The broker is at `address`, or where a profile of Mosquitto leads or an announcement; `endpoint` says how
    else to connect.
    Messages on the topics of `readers` go to them and are confirmed by a receipt; those of the inbox go to
    `on_delivery` and are acknowledged when they are `confirm`ed. `on_refused` is told of a message of the
    `window` that was refused and that somebody left to it, or gave up waiting for. All are called by this
    thread and must not wait.
    """

    def __init__(
        self,
        service: str,
        address: BrokerAddress,
        found_by: Path | DnsSd | None,
        endpoint: Endpoint,
        window: OutboxWindow,
        questions: Mapping[str, OpenQuestions[Any, Any]],
        readers: Mapping[str, Callable[[bytes], None]],
        on_delivery: Callable[[Received], None],
        on_refused: Callable[[bytes, str], None],
    ) -> None:
        self._service = service
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
        self._is_forgotten = endpoint.clean_session
        self._link = link_to_broker(
            address,
            found_by,
            partial(self._dial, endpoint),
            _BACKOFF,
            endpoint.connect_timeout_s,
            has_login=endpoint.login is not None,
            wake=self.wake,
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=service, daemon=True)

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._link.up

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def wake(self) -> None:
        """Something new is to be sent."""
        self._mailbox.put(_Wake())

    def announce(self, payload: bytes) -> None:
        """Keep what the service handles with the broker, over each connection; empty: take it back."""
        self._mailbox.put(_Announce(payload))

    def confirm(self, received: Received, receipt: Receipt | None) -> None:
        """The inbox's message is dealt with; without a `receipt` it failed. Any thread may call it."""
        self._mailbox.put(_Handled(received, receipt))

    def close(self) -> None:
        """End; what was said before still goes out."""
        self._stopping = True
        self._mailbox.put(Stop())
        self._thread.join(2 * CLOSE_S)

    def _dial(self, endpoint: Endpoint, address: BrokerAddress, generation: int) -> Connection:
        there = replace(endpoint, host=address.host, port=address.port, tls=address.tls)
        return Connection(there, LinkName.LOCAL, generation, self._mailbox.put)

    def _run(self) -> None:
        while not self._stopping:
            now = monotonic()
            self._link.tick(now)
            if self._link.up:
                self._send(now)
            for message in self._mailbox.wait(self._patience()):
                self._take(message)
        for message in self._mailbox.wait(0):
            if isinstance(message, _Handled | _Announce):
                self._take(message)
        if self._is_forgotten and self._announced and self._link.up:
            self._keep(b"")  # after a farewell the broker publishes no will
        self._link.close(CLOSE_S)

    def _send(self, now: float) -> None:
        for payload in self._window.due(now):
            self._link.publish(self._outbox, payload)
        for questions in self._questions.values():
            for payload in questions.due(now):
                self._link.publish(questions.topic, payload)

    def _patience(self) -> float | None:
        if not self._link.up:
            due = [self._link.deadline()]
        else:
            due = [self._window.deadline(), *(each.deadline() for each in self._questions.values())]
        deadline = min((each for each in due if each is not None), default=None)
        return None if deadline is None else max(0.0, deadline - monotonic())

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
                    self._keep(payload)
            case _Handled(received, receipt):
                if receipt and self._link.up:
                    self._link.publish(receipt_topic(self._service, "inbox"), write_receipts([receipt]))
                self._link.acknowledge(received.generation, received.mid)
            case Connected(_, generation):
                self._begin(generation)
            case Disconnected(_, generation, reason):
                if self._link.disconnected(generation, reason, monotonic()):
                    self._early.clear()  # they come again
            case _:
                pass  # a Stop or a wake-up has done its work; the broker's PUBACK proves nothing

    def _begin(self, generation: int) -> None:
        """A connection stands: the broker and the forwarder may have forgotten what was said over another."""
        if not self._link.connected(generation, monotonic()):
            return
        if self._announced is not None:
            self._keep(self._announced)
        self._window.resend()
        for questions in self._questions.values():
            questions.resend()
        self._take_early()

    def _keep(self, announcement: bytes) -> None:
        self._link.publish(interest_topic(self._service), announcement, retain=True)

    def _take_early(self) -> None:
        """A lasting session delivers before the connection stands; until then no receipt could go out."""
        while self._early and self._link.up:
            self._on_delivery(self._early.popleft())

    def _read(self, message: Received) -> None:
        questions, reader = self._questions.get(message.topic), self._readers.get(message.topic)
        try:
            if questions is not None:
                questions.answered(message.payload)
            elif reader is not None:
                reader(message.payload)
                self._confirm(message)
            else:
                self._take_receipts(read_receipts(message.payload))
        except QuestionError as error:
            _log.warning("%s: an answer ignored: %s", self._service, error)
        except ReceiptError as error:
            _log.warning("%s: receipts ignored: %s", self._service, error)

    def _confirm(self, message: Received) -> None:
        if self._link.up:  # else it comes again
            receipt = write_receipts([Receipt(digest(message.payload))])
            self._link.publish(f"{message.topic}/receipts", receipt)

    def _take_receipts(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            confirmed = self._window.confirm(receipt)
            if confirmed is None or receipt.refused is None:
                continue
            if confirmed.left or not confirmed.awaited:
                self._on_refused(confirmed.payload, receipt.refused)
