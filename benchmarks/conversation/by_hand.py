"""The peer: request and response of MQTT 5 by hand, over the same broker, with nothing kept anywhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from local.ports import LOOPBACK

_REQUESTS, _RESPONSES = "by-hand/requests", "by-hand/responses"
_SECONDS = 30.0


@contextmanager
def peer(port: int) -> Iterator[Peer]:
    """Both ends, connected to the broker at `port`."""
    it = Peer(port)
    try:
        yield it
    finally:
        it.close()


class Peer:
    """One program asks, another answers what it got."""

    def __init__(self, port: int) -> None:
        self._came: dict[bytes, threading.Event] = {}
        self._number = 0
        self._asker = self._client(port, "asks", _RESPONSES, self._take)
        self._answerer = self._client(port, "answers", _REQUESTS, self._answer)

    def request(self, payload: bytes) -> None:
        """Returns once the response is there."""
        self._number += 1
        correlation = str(self._number).encode()
        came = self._came[correlation] = threading.Event()
        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic = _RESPONSES
        properties.CorrelationData = correlation
        self._asker.publish(_REQUESTS, payload, qos=1, properties=properties)
        if not came.wait(_SECONDS):
            raise SystemExit("the peer did not answer")

    def close(self) -> None:
        for each in (self._asker, self._answerer):
            each.disconnect()
            each.loop_stop()

    def _client(self, port: int, name: str, topic: str, take: Any) -> Client:
        subscribed = threading.Event()
        client = Client(CallbackAPIVersion.VERSION2, f"by-hand-{name}", protocol=MQTTProtocolVersion.MQTTv5)
        # As our client does it; otherwise each packet waits for the acknowledgement of the one before.
        client.on_socket_open = lambda _client, _data, it: it.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        client.on_connect = lambda *_: client.subscribe(topic, qos=1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = take
        client.connect(LOOPBACK, port)
        client.loop_start()
        if not subscribed.wait(_SECONDS):
            raise SystemExit("the broker did not answer")
        return client

    def _answer(self, client: Client, _: Any, message: MQTTMessage) -> None:
        asked: Any = message.properties
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = asked.CorrelationData
        client.publish(asked.ResponseTopic, message.payload, qos=1, properties=properties)

    def _take(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        answered: Any = message.properties
        self._came.pop(answered.CorrelationData).set()
