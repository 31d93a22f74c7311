"""The routers' sender: an event has been delivered when the stream has confirmed it."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import nats

from eventplane_nats.connection import NatsLink, server_and_name
from eventplane_nats.rights import ROUTER
from eventplane_nats.wire import headers_of
from lambdas.common.sender import TAKEN, Acceptance, Answer, DestinationSender, OutgoingMessage

_PUBLISH_S: Final = 2.0
"""Longest that a stream takes to confirm, seconds."""

_LONGEST_S: Final = 5.0
"""Longest that a batch takes before it is given back, seconds: the port allows 6, and ending a connection
that does not answer takes a part of the last one."""

PAUSE_S: Final = 10.0
"""How long a server that did not answer is not asked again, seconds. A router has 30: one inbox that is down
must not take them from the others."""

_TOO_LARGE: Final = 10054
"""The error code of JetStream for a message that is larger than the stream takes."""


class NatsSender:
    """Sends to `nats://HOST:PORT/STREAM`; keeps a connection to each server. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._connections: dict[str, NatsLink] = {}
        self._down: dict[str, tuple[float, Answer]] = {}

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Publish one batch and wait for the stream to confirm each message."""
        server, stream = server_and_name(url)
        until, answer = self._down.get(server, (0.0, TAKEN))
        if self._clock() < until:
            return [answer] * len(batch)
        try:
            return self._publish(server, stream, batch)
        except Exception as error:  # noqa: BLE001 - also a secret that AWS does not give takes time
            answer = _answer(error)
            self._down[server] = (self._clock() + PAUSE_S, answer)
            if server in self._connections:
                # A function that was frozen has a connection that is dead and does not know it.
                self._connections.pop(server).close(0)
            return [answer] * len(batch)

    def close(self) -> None:
        """End all connections."""
        while self._connections:
            _, connection = self._connections.popitem()
            connection.close()

    def _publish(self, server: str, stream: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Raise what nats-py raises of the server; what it says of a message is that message's answer."""
        give_up = self._clock() + _LONGEST_S
        if server not in self._connections:
            self._connections[server] = NatsLink(server, ROUTER)
        connection = self._connections[server]
        timeout_s = min(_PUBLISH_S, give_up - self._clock())
        if timeout_s <= 0:
            raise TimeoutError
        found = connection.run(_publish_all(connection, stream, batch, timeout_s), timeout_s)
        late = [each for each in found if isinstance(each, TimeoutError)]
        if len(late) == len(found):
            raise late[0]
        return [_answer(each) for each in found]


def open_sender() -> DestinationSender:
    """Return the sender; it connects with the first batch, so that one that is down delays no other."""
    return NatsSender()


async def _publish_all(
    connection: NatsLink, stream: str, batch: Sequence[OutgoingMessage], timeout_s: float
) -> list[BaseException | None]:
    sent = (
        connection.jetstream.publish(
            stream, each.body.encode(), timeout=timeout_s, stream=stream, headers=headers_of(each)
        )
        for each in batch
    )
    answers = await asyncio.gather(*sent, return_exceptions=True)
    return [each if isinstance(each, BaseException) else None for each in answers]


def _answer(error: BaseException | None) -> Answer:
    if error is None:
        return TAKEN
    if not isinstance(error, Exception):
        raise error
    too_large = isinstance(error, nats.errors.MaxPayloadError) or (
        isinstance(error, nats.js.errors.APIError) and error.err_code == _TOO_LARGE
    )
    detail = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Answer(Acceptance.NEVER if too_large else Acceptance.AGAIN, detail)
