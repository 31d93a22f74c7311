"""A device as the cloud sees it: one connection over mutual TLS, QoS 1, a bounded number unacknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eventplane.topics import basic_ingest_topic, urgent_rule
from eventplane_mqtt.connection import Connection
from eventplane_mqtt.endpoint import Endpoint, TlsFiles
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Message
from local.demo.plane import Plane
from local.things import provision

_UNACKNOWLEDGED: Final = 100
_SECONDS: Final = 60.0


class Device:
    """Provisions the thing `name` on entering the `with` block, and connects with the device's own layer."""

    def __init__(self, plane: Plane, name: str, directory: Path) -> None:
        self._thing = provision(
            plane.cloud, name, policy=plane.outputs["DevicePolicy"], directory=directory / name
        )
        rule = plane.outputs["IngestRule"]
        self._topics = [basic_ingest_topic(each, name) for each in (rule, urgent_rule(rule))]
        self._tick = threading.Condition()
        self._up = False
        self._failure: str | None = None
        self._unacknowledged = 0

    def __enter__(self) -> Self:
        thing = self._thing
        endpoint = Endpoint(
            thing.host,
            thing.port,
            thing.name,
            clean_session=True,
            keepalive_s=60,
            connect_timeout_s=10,
            tls=TlsFiles(thing.ca, thing.certificate, thing.key),
        )
        self._connection = Connection(endpoint, LinkName.CLOUD, 1, self._emit)
        with self._tick:
            self._wait(lambda: self._up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close(_SECONDS)

    def publish(self, payload: bytes, *, urgent: bool = False) -> None:
        """Publish into the ingest rule, or the urgent one; waits while too many are unacknowledged."""
        with self._tick:
            self._wait(lambda: self._unacknowledged < _UNACKNOWLEDGED)
            self._unacknowledged += 1
        self._connection.publish(self._topics[urgent], payload)

    def publish_all(self, payloads: Iterable[bytes], *, urgent: bool = False) -> None:
        """All of them, acknowledged before it returns."""
        for payload in payloads:
            self.publish(payload, urgent=urgent)
        with self._tick:
            self._wait(lambda: not self._unacknowledged)

    def _wait(self, condition: Callable[[], bool]) -> None:
        done = self._tick.wait_for(lambda: condition() or self._failure, _SECONDS)
        if self._failure or not done:
            raise SystemExit(f"the device's connection: {self._failure or 'no acknowledgement in time'}")

    def _emit(self, message: Message) -> None:
        with self._tick:
            match message:
                case Connected():
                    self._up = True
                case Acknowledged(failure=None):
                    self._unacknowledged -= 1
                case Acknowledged(failure=reason) | Disconnected(reason=reason):
                    self._failure = reason
            self._tick.notify_all()
