"""Connections whose caller waits: for provisioning, and for a probe that tries what a device can do."""

from __future__ import annotations

from time import monotonic
from typing import Final

from eventplane_mqtt.connection import Connection
from eventplane_mqtt.endpoint import Endpoint, MqttError, longest_connect_s
from eventplane_mqtt.mailbox import (
    Acknowledged,
    Connected,
    Disconnected,
    LinkName,
    Mailbox,
    Message,
    Received,
)

_CLOSE_S: Final = 2.0


class ConnectionEndedError(MqttError):
    """No connection as `client_id`, or it ended too early, for `reason`."""

    client_id: str
    reason: str
    message = (
        "no connection as {client_id!r}: {reason}; see its certificate and policy, and that the endpoint is "
        "reachable from here"
    )


class BlockingConnection:
    """One connection, dialled at once, whose caller waits for its reports. Times are seconds."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._mailbox: Mailbox[Message] = Mailbox()
        self._reports: list[Message] = []
        self._received: list[Received] = []
        self._connection = Connection(endpoint, LinkName.CLOUD, 1, self._mailbox.put)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close(_CLOSE_S)

    def wait_connected(self) -> None:
        """Wait until the connection is up. Raises `ConnectionEndedError`."""
        # A second timeout, in case those of the connection fail.
        give_up_s = longest_connect_s(self._endpoint.connect_timeout_s)
        deadline = monotonic() + give_up_s
        while not isinstance(report := self._next(deadline), Connected):
            if report is None:
                problem = f"neither connected nor refused within {give_up_s:g} s"
                raise ConnectionEndedError(self._endpoint.client_id, problem)

    def send(self, topic: str, payload: bytes) -> int:
        """Publish at QoS 1 without waiting, and return the packet id."""
        return self._connection.publish(topic, payload)

    def publish(self, topic: str, payload: bytes, timeout_s: float) -> bool:
        """Publish at QoS 1; return whether it was acknowledged in time. Raises `ConnectionEndedError`."""
        mid, deadline = self.send(topic, payload), monotonic() + timeout_s
        while (report := self._next(deadline)) is not None:
            if isinstance(report, Received):
                self._received.append(report)
            elif isinstance(report, Acknowledged) and report.mid == mid:
                return report.failure is None
        return False

    def receive(self, timeout_s: float) -> Received | None:
        """Acknowledge and return the next message; None if none comes. Raises `ConnectionEndedError`."""
        deadline = monotonic() + timeout_s
        while not self._received:
            if (report := self._next(deadline)) is None:
                return None
            if isinstance(report, Received):
                self._received.append(report)
        message = self._received.pop(0)
        if message.mid:
            self._connection.acknowledge(message.mid)
        return message

    def _next(self, deadline: float) -> Message | None:
        """Return the next report, None after `deadline`. Raises `ConnectionEndedError`."""
        if not self._reports:
            self._reports = self._mailbox.wait(max(0.0, deadline - monotonic()))
        if not self._reports:
            return None
        report = self._reports.pop(0)
        if isinstance(report, Disconnected):
            raise ConnectionEndedError(self._endpoint.client_id, report.reason)
        return report
