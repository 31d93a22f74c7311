"""A service that sends and forgets: MQTT at QoS 0, no receipt, nothing sent again."""

from __future__ import annotations

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from eventplane.envelope import Envelope
from eventplane.topics import local_topic
from local.ports import LOOPBACK


class CarelessClient:
    """Publishes for the services of `home` at the broker on 127.0.0.1:`port`."""

    def __init__(self, home: str, port: int) -> None:
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"careless-{home}")
        self._client.connect(LOOPBACK, port)
        self._client.loop_start()

    def send(self, service: str, event: Envelope) -> None:
        """Publish into the outbox of `service`."""
        self._client.publish(local_topic(service, "outbox"), event.json.encode(), qos=0)

    def close(self) -> None:
        """Send what waits, and end."""
        self._client.disconnect()
        self._client.loop_stop()
