"""A home's broker keeps what its forwarder has not taken."""

from __future__ import annotations

from collections.abc import Callable

from local.mosquitto import Broker
from tests.eventually import eventually
from tests.integration.mqtt import TestClient


def test_broker_drops_nothing_while_the_forwarder_is_away(mosquitto: Callable[[str], Broker]) -> None:
    broker = mosquitto("home")
    payloads = [str(number).encode() for number in range(5_000)]  # the broker's default limit is 1,000
    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        forwarder.subscribe("outbox")
    with TestClient("service", "127.0.0.1", broker.port) as service:
        assert service.publish_all("outbox", payloads)

    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        assert eventually(lambda: len(forwarder.messages) >= len(payloads))
        assert [payload for _topic, payload in forwarder.messages] == payloads
