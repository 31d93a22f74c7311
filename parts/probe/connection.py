"""A device's connection to AWS IoT Core, for a probe that tries what its certificate and policy allow."""

from __future__ import annotations

from typing import Final

from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from eventplane_mqtt.endpoint import Endpoint, TlsFiles
from eventplane_mqtt.probe import BlockingConnection, ConnectionEndedError

MQTT_PORT: Final = 8_883
"""AWS IoT Core's for MQTT with mutual TLS."""

_KEEPALIVE_S: Final = 60


class DeviceProbe(BlockingConnection):
    """A connection of the device `thing` to IoT Core, which its certificate and the device policy allow.

    It publishes to the ingest `rule` and the urgent one; each answer has `timeout_s`. With `reads_inbox` it
    subscribes to the device's inbox.
    """

    def __init__(
        self,
        host: str,
        port: int,
        thing: str,
        tls: TlsFiles,
        rule: str,
        timeout_s: float,
        *,
        reads_inbox: bool,
    ) -> None:
        self._thing = thing
        self._rule = rule
        self._timeout_s = timeout_s
        super().__init__(
            Endpoint(
                host=host,
                port=port,
                client_id=thing,
                clean_session=True,
                keepalive_s=_KEEPALIVE_S,
                connect_timeout_s=timeout_s,
                subscriptions=(device_topic(thing, "inbox"),) if reads_inbox else (),
                tls=tls,
            )
        )

    def report(self, payload: bytes, *, is_urgent: bool = False) -> None:
        """Publish to the device's outbox, and return once IoT Core has it. Raises `ConnectionEndedError`."""
        rule = urgent_rule(self._rule) if is_urgent else self._rule
        if not self.publish(basic_ingest_topic(rule, self._thing), payload, self._timeout_s):
            raise ConnectionEndedError(self._thing, "a publish to its own outbox was not acknowledged")

    def is_refused_as(self, other: str) -> bool:
        """Publish to the outbox of another device; return whether the connection ended without a PUBACK."""
        try:
            self.publish(basic_ingest_topic(self._rule, other), b"{}", self._timeout_s)
        except ConnectionEndedError:
            return True
        return False
