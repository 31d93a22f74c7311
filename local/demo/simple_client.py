"""A device without a forwarder: it publishes straight to the cloud, good events and garbage alike."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from eventplane.topics import basic_ingest_topic
from local.errors import LocalError
from local.things import Thing

_PATIENCE_SECONDS = 60.0


class SimpleClientError(LocalError):
    """The cloud did not take what the simple client sent. `reason` says what happened."""

    def __init__(self, thing: str, reason: str) -> None:
        self.thing, self.reason = thing, reason
        super().__init__(f"{thing} could not publish: {reason}; see the emulator's log")


def publish_all(thing: Thing, rule: str, payloads: Iterable[bytes]) -> None:
    """Publish each payload to the thing's outbox at QoS 1. Raises `SimpleClientError` if one is not taken."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=thing.name)
    context = ssl.create_default_context(cafile=str(thing.ca))
    context.load_cert_chain(thing.certificate, thing.key)
    client.tls_set_context(context)
    connected = threading.Event()
    answers: list[ReasonCode] = []

    def on_connect(_client: object, _data: object, _flags: object, code: ReasonCode, _: object) -> None:
        answers.append(code)
        connected.set()

    client.on_connect = on_connect
    client.connect(thing.host, thing.port)
    client.loop_start()
    try:
        if not connected.wait(_PATIENCE_SECONDS) or answers[0].is_failure:
            raise SimpleClientError(thing.name, str(answers[0]) if answers else "no answer to CONNECT")
        topic = basic_ingest_topic(rule, thing.name)
        for payload in payloads:
            message = client.publish(topic, payload, qos=1)
            if message.rc is not MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise SimpleClientError(thing.name, str(message.rc))
            message.wait_for_publish(_PATIENCE_SECONDS)
            if not message.is_published():
                raise SimpleClientError(thing.name, "no PUBACK")
    finally:
        client.disconnect()
        client.loop_stop()
