"""Runs the exchange over MQTT connections to AWS IoT Core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from edge.settings import CloudSettings
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX, answer_topics
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.probe import BlockingConnection, ConnectionEndedError
from parts.provisioning import NoAnswerError, OfflineError
from parts.provisioning.exchange import Exchange, Keep


class MqttCloud(NamedTuple):
    """AWS IoT Core, for the device called `thing`. `timeout_s` is for each answer."""

    settings: CloudSettings
    thing: str
    claim: TlsFiles
    timeout_s: float

    def run(self, exchange: Exchange, keep: Keep, pair: Path | None = None) -> None:
        """Run `exchange` with the device's `pair`, without one as the claim. Raises `ProvisioningError`.

        Either has a client id of its own, so that the forwarder stays connected.
        """
        with self._connect_beside(pair, exchange.topics) as connection:
            exchange.run(partial(self._ask, connection), keep)

    def try_pair(self, pair: Path) -> None:
        """Connect as the device with the key and certificate in `pair`. Raises `OfflineError`.

        IoT Core allows one connection of a client id, so it cuts the forwarder's, which reconnects by itself.
        """
        with self._connected(self.thing, TlsFiles(self.claim.ca, pair, pair), ()):
            pass

    def accepts(self, pair: Path | None) -> bool:
        """Return whether a connection with the device's `pair`, without one as the claim, succeeds.

        The forwarder stays connected.
        """
        try:
            with self._connect_beside(pair, ()):
                return True
        except OfflineError:
            return False

    def _connect_beside(
        self, pair: Path | None, topics: tuple[str, ...]
    ) -> AbstractContextManager[BlockingConnection]:
        if pair is None:
            return self._connected(CLAIM_CLIENT_PREFIX + self.thing, self.claim, topics)
        own = TlsFiles(self.claim.ca, pair, pair)
        return self._connected(RENEWAL_CLIENT_PREFIX + self.thing, own, topics)

    @contextmanager
    def _connected(
        self, client_id: str, tls: TlsFiles, topics: tuple[str, ...]
    ) -> Iterator[BlockingConnection]:
        try:
            with closing(BlockingConnection(self.settings.endpoint(client_id, topics, tls))) as connection:
                connection.wait_connected()
                yield connection
        except ConnectionEndedError as error:
            raise OfflineError(error.client_id, error.reason) from error

    def _ask(
        self, connection: BlockingConnection, step: str, topic: str, payload: bytes
    ) -> tuple[str, bytes]:
        """See `parts.provisioning.exchange.Ask`. Raises `NoAnswerError`, and ignores other messages."""
        connection.send(topic, payload)
        deadline = monotonic() + self.timeout_s
        while (message := connection.receive(deadline - monotonic())) is not None:
            if message.topic in answer_topics(topic):  # QoS 1 may repeat the answer of an earlier step
                return message.topic, message.payload
        raise NoAnswerError(step, self.timeout_s)
