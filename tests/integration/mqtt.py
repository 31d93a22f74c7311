"""A small MQTT client for tests: every step waits for the broker's answer."""

import ssl
import threading
from collections.abc import Iterable
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from lab.things import Thing
from tests.eventually import eventually

SECONDS = 10.0


class TestClient:
    """Connects on entering the `with` block. `messages` holds (topic, payload) in order of arrival.

    With `persistent` the broker keeps its subscriptions, and what arrives for them, while it is away.
    """

    __test__ = False  # not a test, says its name to pytest

    def __init__(
        self, client_id: str, host: str, port: int, thing: Thing | None = None, *, persistent: bool = False
    ) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.arrived = threading.Event()
        self.connected = threading.Event()
        self.disconnected = threading.Event()
        self._address = (host, port)
        self._subscribed = threading.Event()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not persistent,
            reconnect_on_failure=False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda *_: self.disconnected.set()
        self._client.on_subscribe = self._on_subscribe
        self._granted: list[ReasonCode] = []
        self._client.on_message = self._on_message
        if thing is not None:
            context = ssl.create_default_context(cafile=str(thing.ca))
            context.load_cert_chain(thing.certificate, thing.key)
            self._client.tls_set_context(context)

    @classmethod
    def of_thing(cls, thing: Thing) -> Self:
        """A device: client id is the thing's name, mutual TLS with its certificate."""
        return cls(thing.name, thing.host, thing.port, thing)

    def __enter__(self) -> Self:
        assert self._client.connect(*self._address) == MQTTErrorCode.MQTT_ERR_SUCCESS
        self._client.loop_start()
        assert self.connected.wait(SECONDS)
        assert not self._answer.is_failure, self._answer
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def is_refused(self) -> bool:
        """Whether the broker ends the connection, or answers with a refusal, instead of accepting it."""
        codes: list[ReasonCode] = []

        def note(_client: Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any) -> None:
            codes.append(code)

        self._client.on_connect = note
        self._client.connect(*self._address)
        self._client.loop_start()
        try:
            assert eventually(lambda: bool(codes) or self.disconnected.is_set(), SECONDS)
        finally:
            self._client.disconnect()
            self._client.loop_stop()
        return not codes or codes[0].is_failure

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, qos=1)
        assert self._subscribed.wait(SECONDS)

    def is_refused_to(self, topic: str) -> bool:
        """Whether a subscription is refused, by its answer or by the end of the connection."""
        self._subscribed.clear()
        self._client.subscribe(topic, qos=1)
        assert eventually(lambda: self._subscribed.is_set() or self.disconnected.is_set(), SECONDS)
        return not self._subscribed.is_set() or all(code.is_failure for code in self._granted)

    def publish_all(self, topic: str, payloads: Iterable[bytes], seconds: float = SECONDS) -> bool:
        """Publish many at QoS 1; whether the broker acknowledged them all within `seconds`."""
        sent = [self._client.publish(topic, payload, qos=1) for payload in payloads]
        return eventually(
            lambda: sent[-1].is_published() and all(one.is_published() for one in sent), seconds
        )

    def publish(self, topic: str, payload: bytes, seconds: float = SECONDS) -> bool:
        """Publish at QoS 1; whether the broker acknowledged it, within `seconds` and on this connection."""
        sent = self._client.publish(topic, payload, qos=1)
        if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False  # the broker has ended the connection before
        # paho's own wait does not notice that the connection ends.
        eventually(lambda: sent.is_published() or self.disconnected.is_set(), seconds)
        return sent.is_published()

    def _on_connect(
        self, _client: Client, _data: Any, _flags: Any, answer: ReasonCode, _properties: Any
    ) -> None:
        self._answer = answer
        self.connected.set()

    def _on_subscribe(
        self, _client: Client, _data: Any, _mid: int, codes: list[ReasonCode], _properties: Any
    ) -> None:
        self._granted = codes
        self._subscribed.set()

    def _on_message(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        self.messages.append((message.topic, bytes(message.payload)))
        self.arrived.set()
