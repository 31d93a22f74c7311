"""Runs the exchange over MQTT connections to AWS IoT Core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from edge.provisioning import NoAnswerError, UnreachableError
from edge.provisioning.exchange import Created, Exchange, Registered, Request
from edge.settings import CloudSettings
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from eventplane_mqtt import Connection, Endpoint, TlsFiles
from eventplane_mqtt.endpoint import longest_connect_s
from eventplane_mqtt.mailbox import Connected, Disconnected, LinkName, Mailbox, Message, Received

_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class MqttCloud:
    """AWS IoT Core, for the device called `thing`. `timeout_s` is for each answer."""

    settings: CloudSettings
    thing: str
    claim: TlsFiles
    timeout_s: float

    def run(
        self, exchange: Exchange, on_created: Callable[[Created], None], pair: Path | None = None
    ) -> None:
        """Run `exchange` with the device's `pair`, without one as the claim. Raises `ProvisioningError`.

        Either has a client id of its own, so that the forwarder stays connected. `on_created` is called
        before the certificate is registered, and has to store it.
        """
        with self._connect_beside(pair, exchange.topics) as connection:
            connection.wait_connected(self.settings.connect_timeout_s)
            request = exchange.first
            while True:
                step = connection.ask(request, exchange, self.timeout_s)
                if isinstance(step, Registered):
                    return
                on_created(step)
                request = step.then

    def try_pair(self, pair: Path) -> None:
        """Connect as the device with the key and certificate in `pair`. Raises `UnreachableError`.

        IoT Core allows one connection of a client id, so it cuts the forwarder's, which reconnects by itself.
        """
        with self._connect(self.thing, TlsFiles(self.claim.ca, pair, pair), ()) as connection:
            connection.wait_connected(self.settings.connect_timeout_s)

    def accepts(self, pair: Path | None) -> bool:
        """Whether a connection with the device's `pair`, without one as the claim, succeeds.

        The forwarder stays connected.
        """
        try:
            with self._connect_beside(pair, ()) as connection:
                connection.wait_connected(self.settings.connect_timeout_s)
        except UnreachableError:
            return False
        return True

    def _connect_beside(self, pair: Path | None, topics: tuple[str, ...]) -> _BlockingConnection:
        if pair is None:
            return self._connect(CLAIM_CLIENT_PREFIX + self.thing, self.claim, topics)
        own = TlsFiles(self.claim.ca, pair, pair)
        return self._connect(RENEWAL_CLIENT_PREFIX + self.thing, own, topics)

    def _connect(self, client_id: str, tls: TlsFiles, topics: tuple[str, ...]) -> _BlockingConnection:
        return _BlockingConnection(self.settings.endpoint(client_id, topics, tls))


class _BlockingConnection:
    """One connection whose caller waits for its reports."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client_id = endpoint.client_id
        self._mailbox: Mailbox[Message] = Mailbox()
        self._reports: list[Message] = []
        self._connection = Connection(endpoint, LinkName.CLOUD, 1, self._mailbox.put)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close(_CLOSE_S)

    def wait_connected(self, connect_timeout_s: float) -> None:
        """Wait until the connection is up. Raises `UnreachableError`."""
        # A second timeout, in case those of the connection fail.
        give_up_s = longest_connect_s(connect_timeout_s)
        deadline = monotonic() + give_up_s
        while not isinstance(report := self._next(deadline), Connected):
            if report is None:
                problem = f"neither connected nor refused within {give_up_s:g} s"
                raise UnreachableError(self._client_id, problem)

    def ask(self, request: Request, exchange: Exchange, timeout_s: float) -> Created | Registered:
        """Send `request` and return the result of its answer. Raises `ProvisioningError`."""
        self._connection.publish(request.topic, request.payload)
        deadline = monotonic() + timeout_s
        while (report := self._next(deadline)) is not None:
            if isinstance(report, Received):
                if report.mid:
                    self._connection.acknowledge(report.mid)
                if step := exchange.answer(report.topic, report.payload):
                    return step
        raise NoAnswerError(request.step, timeout_s)

    def _next(self, deadline: float) -> Message | None:
        """Return the next report, None after `deadline`. Raises `UnreachableError` if the connection ends."""
        if not self._reports:
            self._reports = self._mailbox.wait(max(0.0, deadline - monotonic()))
        if not self._reports:
            return None
        report = self._reports.pop(0)
        if isinstance(report, Disconnected):
            raise UnreachableError(self._client_id, report.reason)
        return report
