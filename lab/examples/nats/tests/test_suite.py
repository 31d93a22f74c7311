"""The contract suite of the client library over NATS JetStream: the tests are those of the other backends."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import load_contract
from eventplane.contract import Channel
from eventplane.envelope import Envelope, parse_event
from eventplane_client import Client, Mode
from eventplane_client.notices import Notice
from eventplane_client.ports import Message
from eventplane_client.resequencer import GAP_TIMEOUT_S
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_client.subscription import NoSubscriptions
from eventplane_nats.connection import NatsLink
from eventplane_nats.streams import level, make_stream
from eventplane_nats.transport import NatsTransport
from lab.examples.nats.tests.server import NatsServer
from tests.eventually import eventually
from tests.unit.client.test_contract_suite import *  # noqa: F403
from tests.unit.client.worlds import MAX_RECEIVES, READER, SENDER, VISIBILITY_S, Steps

SECONDS = 20.0

_numbers = itertools.count(1)


class CrashingTransport(NatsTransport):
    """Remembers what it was given, so that a test need not wait until a crashed reader's time is over."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: list[Message] = []

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        found = super().receive(most, timeout_s)
        self.given += found
        return found

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        failed = super().acknowledge(messages, refused=refused)
        self.given = [each for each in self.given if each not in messages or each in failed]
        return failed

    def release(self, message: Message, wait_s: float) -> None:
        super().release(message, wait_s)
        self.given = [each for each in self.given if each is not message]


class NatsWorld:
    """The sender's outbox is the reader's inbox, as if a router stood in between that sends on everything."""

    reader = READER
    sender = SENDER
    idle_s = 3.0  # what was given back waits a second

    def __init__(self, server: NatsServer, operator: NatsLink, directory: Path) -> None:
        self._server = server
        self._operator = operator
        self._directory = directory
        self._environment = f"world{next(_numbers)}"
        self._transports: list[CrashingTransport] = []
        self._filters: list[SqliteFilter] = []
        self._inbox, self._outbox = (self._stream(box) for box in ("inbox", "outbox"))

    def client(
        self,
        participant: str,
        *,
        mode: Mode = Mode.EXACTLY_ONCE,
        steps: Steps | None = None,
        on_notice: Callable[[Notice], None] = lambda _: None,
        gap_timeout_s: float = GAP_TIMEOUT_S,
    ) -> Client:
        outbox = self._outbox if participant == self.reader else self._inbox
        transport = CrashingTransport.find(participant, self._server.url, inbox=self._inbox, outbox=outbox)
        assert (transport.visibility_s, transport.max_receives) == (VISIBILITY_S, MAX_RECEIVES)
        self._transports.append(transport)
        around = steps.around if steps else lambda wrapped: wrapped
        return Client(
            participant,
            around(transport),
            lambda: around(self._filter(participant)),
            NoSubscriptions("none here"),
            mode=mode,
            on_notice=on_notice,
            gap_timeout_s=gap_timeout_s,
        )

    def crash(self) -> None:
        for each in self._transports:
            # Its time is over: what the server does by itself after VISIBILITY_S.
            for message in [*each.given]:
                each.release(message, 0)
            each.close()
        for filter in self._filters:
            filter.close()  # what the system does for a process that ends
        self._transports.clear()
        self._filters.clear()

    def hurry(self) -> None:
        """Do nothing: a requeued event is redelivered after a second or two anyway."""

    def deliver(self, body: Envelope | bytes) -> None:
        # Over NATS no sender is stamped on the way, so it is not here.
        payload = body.json.encode() if isinstance(body, Envelope) else body
        self._operator.run(self._operator.jetstream.publish(self._inbox, payload), SECONDS)

    def pending(self) -> int:
        eventually(lambda: self._messages(self._inbox) == 0, SECONDS)
        return self._messages(self._inbox)

    def taken_away(self) -> int:
        return self._operator.run(level(self._operator.jetstream, self._inbox), SECONDS).given_up

    def letters(self, least: int = 0) -> list[Envelope]:
        found = []
        for number in range(1, self._messages(self._outbox) + 1):
            message = self._operator.run(self._operator.jetstream.get_msg(self._outbox, number), SECONDS)
            found.append(parse_event(message.data or b""))
        return found

    def _stream(self, box: str) -> str:
        channel: Channel = replace(load_contract().channel(f"{READER}.{box}"), transport="nats")
        made = make_stream(
            self._operator.jetstream,
            self._environment,
            channel,
            ack_wait_s=VISIBILITY_S,
            max_deliver=MAX_RECEIVES + 1,
        )
        return self._operator.run(made, SECONDS)

    def _messages(self, stream: str) -> int:
        return self._operator.run(level(self._operator.jetstream, stream), SECONDS).messages

    def _filter(self, participant: str) -> SqliteFilter:
        found = SqliteFilter(self._directory / f"{participant}.db", on_notice=lambda _: None)
        self._filters.append(found)
        return found


@pytest.fixture
def world(nats_server: NatsServer, operator: NatsLink, tmp_path: Path) -> Iterator[NatsWorld]:
    it = NatsWorld(nats_server, operator, tmp_path)
    yield it
    it.crash()
