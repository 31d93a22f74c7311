"""The transport of a cloud service: its inbox and outbox as streams of JetStream."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

import nats
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from eventplane.envelope import Envelope
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.retries import RetrySchedule
from eventplane.sqs_binding import SqsMessage
from eventplane_client.client import Client
from eventplane_client.connection import client_of, filter_of
from eventplane_client.contract_in_force import deployed_contract
from eventplane_client.errors import (
    ClientSettingsError,
    ClosedError,
    NotConfirmedError,
    RefusedError,
    UnavailableError,
)
from eventplane_client.notices import Listener
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.ports import Message, Mode
from eventplane_client.settings import ClientSettings
from eventplane_client.subscription import NoSubscriptions
from eventplane_nats.connection import NatsAddressError, NatsLink, server_and_name
from eventplane_nats.streams import READER, redriven, stream_name
from eventplane_nats.wire import RETRIES, ROUTE, headers_of

_log = logging.getLogger(__name__)

_CALL_S: Final = 5.0
"""Longest that one question to the server takes, seconds."""

_STATUS_S: Final = 2.0
"""Longest that a server takes to say that there are no more messages, seconds."""

_WAIT_S: Final = 5.0
"""Longest that one request waits for a message, seconds: one that a lost connection forgot is asked again."""

_NO_MESSAGES: Final = frozenset({"404", "408"})
"""The statuses with which a server ends a request for messages: none there, or none came in time."""

_FAULTS: Final = (nats.errors.Error, OSError, TimeoutError)


class NatsTransport:
    """Takes part as `participant` over `connection`, with the streams `inbox` and `outbox`.

    `order` numbers what goes into ordered inboxes; without it such events come there in any order. `redriven`
    is what `streams.redriven` returns.
    """

    keeps_refused = False
    receipts = None

    def __init__(
        self,
        participant: str,
        connection: NatsLink,
        *,
        inbox: str,
        outbox: str,
        visibility_s: float,
        max_receives: int,
        order: OutboxOrder | None = None,
        redriven: tuple[int, str | None] = (0, None),
    ) -> None:
        self.visibility_s: float | None = visibility_s
        self.max_receives = max_receives
        self._participant = participant
        self._connection = connection
        self._inbox = inbox
        self._outbox = outbox
        self._order = order
        self._redriven = redriven
        self._requests = count()
        self._asking = asyncio.Lock()
        self._replies: Subscription | None = None
        self._reply_to = connection.nats.new_inbox()
        self._closed = False

    @classmethod
    def find(
        cls, participant: str, server: str, *, inbox: str, outbox: str, order: OutboxOrder | None = None
    ) -> Self:
        """Connect to `server`; the stream `inbox` says how long and how often a reader has a message.

        Like a queue of SQS it gives up a message that comes oftener than its limit, so that the last delivery
        is reserved for the dead letter of an event that was in hand at a crash: `max_receives` is one less.
        Raises `UnavailableError`.
        """
        with _unavailable(participant):
            connection = NatsLink(server, participant)
        try:
            with _unavailable(participant):
                info = connection.run(connection.jetstream.consumer_info(inbox, READER), _CALL_S)
        except BaseException:
            connection.close()
            raise
        return cls(
            participant,
            connection,
            inbox=inbox,
            outbox=outbox,
            visibility_s=float(info.config.ack_wait or 0),
            max_receives=max(1, (info.config.max_deliver or 0) - 1),
            order=order,
            redriven=redriven(info.config),
        )

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        self._check_open()
        numbered = self._order.numbered(event) if self._order and durable else event
        message = SqsMessage((numbered,), numbered.json, {})
        body = message.body.encode()
        if len(body) > MAX_SENT_EVENT_BYTES:
            problem = f"{len(body)} bytes, a participant sends at most {MAX_SENT_EVENT_BYTES}"
            raise RefusedError(self._participant, "too_large", problem)
        server = self._connection
        headers = headers_of(message)
        try:
            if durable:
                sent = server.jetstream.publish(self._outbox, body, timeout=timeout_s, headers=headers)
                server.run(sent, timeout_s)
            else:
                server.run(server.nats.publish(self._outbox, body, headers=headers), timeout_s)
        except nats.errors.MaxPayloadError as error:
            raise RefusedError(self._participant, "too_large", str(error)) from error
        except _FAULTS as error:
            if not durable:
                _log.debug("%s: lost at best effort: %s", self._participant, error)
            elif isinstance(error, TimeoutError):
                raise NotConfirmedError(self._participant, timeout_s) from error
            else:
                raise UnavailableError(self._participant, _reason(error)) from error

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        self._check_open()
        with _unavailable(self._participant):
            found = self._connection.run(self._fetch(most, timeout_s), timeout_s + 2 * _CALL_S)
        return [_message(each, *self._redriven) for each in found]

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:  # noqa: ARG002
        if self._closed:
            return list(messages)
        try:
            answers = self._connection.run(self._acknowledge(messages), _CALL_S)
        except _FAULTS as error:
            _log.warning("%s: not acknowledged: %s", self._participant, error)
            return list(messages)
        failed = [each for each, answer in zip(messages, answers, strict=True) if answer is not None]
        if failed:
            _log.warning("%s: %d not acknowledged", self._participant, len(failed))
        return failed

    def release(self, message: Message, wait_s: float) -> None:
        delay = json.dumps({"delay": int(wait_s * 1e9)}).encode()
        self._tell([message], b"-NAK " + delay if wait_s > 0 else b"-NAK")

    def extend(self, messages: Sequence[Message]) -> None:
        self._check_open()
        self._tell(messages, b"+WPI")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._connection.close()

    async def _fetch(self, most: int, timeout_s: float) -> list[Msg]:
        """Take what is there; if that is nothing, wait for the first, and take what came with it."""
        give_up = monotonic() + timeout_s
        while True:
            found = await self._ask({"batch": most, "no_wait": True}, most, _STATUS_S)
            left = give_up - monotonic()
            if found or left <= 0:
                return found
            wait_s = min(left, _WAIT_S)
            first = await self._ask({"batch": 1, "expires": int(wait_s * 1e9)}, 1, wait_s + _STATUS_S)
            if first:
                more = most - len(first)
                return first + (await self._ask({"batch": more, "no_wait": True}, more, _STATUS_S))

    async def _ask(self, what: dict[str, Any], most: int, timeout_s: float) -> list[Msg]:
        """Ask for messages; return those that came until the server says that there are no more.

        What a request before this one left behind is returned as well: it has been handed to this reader.
        """
        if most < 1:
            return []
        async with self._asking:
            return await self._answers(what, most, timeout_s)

    async def _answers(self, what: dict[str, Any], most: int, timeout_s: float) -> list[Msg]:
        found: list[Msg] = []
        if self._replies is None:
            self._replies = await self._connection.nats.subscribe(f"{self._reply_to}.*")
        reply_to = f"{self._reply_to}.{next(self._requests)}"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._inbox}.{READER}"
        give_up = monotonic() + timeout_s
        await self._connection.nats.publish(subject, json.dumps(what).encode(), reply=reply_to)
        while len(found) < most:
            try:
                message = await self._replies.next_msg(max(0.001, give_up - monotonic()))
            except TimeoutError:
                # No word is usual of a server (2.9) that has just given a message up; else this tells what is
                # wrong: the stream is gone, or the server.
                await self._connection.jetstream.consumer_info(self._inbox, READER, timeout=_CALL_S)
                break
            status = (message.headers or {}).get("Status")
            if status is None:
                found.append(message)
            elif message.subject == reply_to:
                if status not in _NO_MESSAGES and not found:
                    description = (message.headers or {}).get("Description", "nobody answers for the stream")
                    raise nats.errors.Error(f"{self._inbox}: {status} {description}")
                break
        return found

    async def _acknowledge(self, messages: Sequence[Message]) -> list[object]:
        # Each waits for the server's word: without it a message that comes again would be a surprise.
        request = self._connection.nats.request
        sent = (request(_delivery(each).reply, b"+ACK", timeout=_CALL_S) for each in messages)
        answers = await asyncio.gather(*sent, return_exceptions=True)
        return [each if isinstance(each, BaseException) else None for each in answers]

    def _tell(self, messages: Sequence[Message], what: bytes) -> None:
        """Those that it does not reach come again after `visibility_s`."""
        if self._closed:
            return

        async def tell() -> None:
            for each in messages:
                await self._connection.nats.publish(_delivery(each).reply, what)
            await self._connection.nats.flush(int(_CALL_S))

        try:
            self._connection.run(tell(), _CALL_S)
        except _FAULTS as error:
            _log.warning("%s: %s did not reach the server: %s", self._participant, what.decode(), error)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self._participant)


def nats_client(settings: ClientSettings, address: str, on_notice: Listener) -> Client:
    """Connect to `//HOST:PORT/ENVIRONMENT`. Raises `ClientSettingsError`, `UnavailableError`."""
    try:
        server, environment = server_and_name(f"nats:{address}")
    except NatsAddressError as error:
        raise ClientSettingsError("transport", str(error), "ENVIRONMENT is the deployed plane's") from error
    if settings.mode is Mode.EXACTLY_ONCE and not settings.state:
        raise ClientSettingsError(
            "state", "exactly_once over NATS needs a place on the disk", "use sqlite:PATH"
        )
    open_filter = filter_of(settings, "memory:", on_notice)
    name = settings.participant
    inbox, outbox = (stream_name(environment, f"{name}.{box}") for box in ("inbox", "outbox"))
    return client_of(
        settings,
        on_notice,
        NatsTransport.find(name, server, inbox=inbox, outbox=outbox, order=_order(settings)),
        open_filter,
        NoSubscriptions("over NATS a participant has the contract's routes alone"),
    )


def _order(settings: ClientSettings) -> OutboxOrder | None:
    """Whoever sends into ordered inboxes knows them by the contract."""
    if not settings.contract:
        return None
    contract = deployed_contract(Path(settings.contract))
    return (
        OutboxOrder(contract, settings.participant) if settings.participant in contract.participants else None
    )


def _message(found: Msg, redriven_to: int, mark: str | None) -> Message:
    metadata, headers = found.metadata, found.headers or {}
    return Message(
        body=found.data,
        attempt=metadata.num_delivered,
        retries=RetrySchedule.read(headers.get(RETRIES)),
        handle=found,
        sent_at_ms=int(metadata.timestamp.timestamp() * 1_000),
        route=headers.get(ROUTE),
        redrive=mark if metadata.sequence.stream <= redriven_to else None,
        is_shared=True,
    )


def _delivery(message: Message) -> Msg:
    assert isinstance(message.handle, Msg)  # noqa: S101 - `receive` makes no other messages
    return message.handle


@contextmanager
def _unavailable(participant: str) -> Iterator[None]:
    """Raise `UnavailableError` for what the server or the network refuse."""
    try:
        yield
    except _FAULTS as error:
        raise UnavailableError(participant, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, nats.js.errors.NotFoundError | nats.js.errors.NoStreamResponseError):
        return f"{error}; create the streams with `python -m eventplane_nats create`"
    return str(error) or f"{type(error).__name__}: the server does not answer"
