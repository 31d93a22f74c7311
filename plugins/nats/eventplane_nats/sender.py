"""The routers' sender: an event has been delivered when the stream has confirmed it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import nats

from eventplane_nats.connection import Connection, server_and_name
from eventplane_nats.wire import headers_of
from lambdas.common.sender import TAKEN, Answer, Fate, Message, Sender

_PUBLISH_S: Final = 2.0
"""Longest that a stream takes to confirm, seconds; with connecting it stays below the port's bound."""

_TOO_LARGE: Final = 10054
"""The error code of JetStream for a message that is larger than the stream takes."""


class NatsSender:
    """Sends to `nats://HOST:PORT/STREAM`; keeps a connection to each server."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def send(self, url: str, batch: Sequence[Message]) -> list[Answer]:
        """Publish one batch and wait for the stream to confirm each message."""
        server, stream = server_and_name(url)
        try:
            connection = self._connection(server)
            return connection.run(_publish_all(connection, stream, batch), _PUBLISH_S)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            # A router that cannot connect says so of each message; the queue brings them again.
            return [_answer(error)] * len(batch)

    def close(self) -> None:
        """End all connections."""
        while self._connections:
            _, connection = self._connections.popitem()
            connection.close()

    def _connection(self, server: str) -> Connection:
        if server not in self._connections:
            self._connections[server] = Connection(server, "router")
        return self._connections[server]


def open_sender() -> Sender:
    """Return the sender; it connects with the first batch, so that one that is down delays no other."""
    return NatsSender()


async def _publish_all(connection: Connection, stream: str, batch: Sequence[Message]) -> list[Answer]:
    sent = (
        connection.jetstream.publish(
            stream, each.body.encode(), timeout=_PUBLISH_S, stream=stream, headers=headers_of(each)
        )
        for each in batch
    )
    answers = await asyncio.gather(*sent, return_exceptions=True)
    return [_answer(each) if isinstance(each, BaseException) else TAKEN for each in answers]


def _answer(error: BaseException) -> Answer:
    if not isinstance(error, Exception):
        raise error
    too_large = isinstance(error, nats.errors.MaxPayloadError) or (
        isinstance(error, nats.js.errors.APIError) and error.err_code == _TOO_LARGE
    )
    detail = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Answer(Fate.NEVER if too_large else Fate.AGAIN, detail)
