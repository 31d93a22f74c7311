"""Senders beside the homes: carers in the cloud, and a device without a forwarder."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from eventplane.contract import Place
from eventplane.envelope import Envelope, write_event
from eventplane.topics import basic_ingest_topic
from eventplane.values import timestamp
from lab.errors import LocalError
from lab.home import Home
from lab.oracle import CARERS, CARERS_SOURCE, SentLog
from lab.plane import Plane
from lab.poison import cloud_payloads
from lab.process import Supervisor
from lab.services import utc_now
from lab.things import Thing

MESSAGE: Final = "org.eventplane.home.message.v1"
THRESHOLD: Final = "org.eventplane.home.threshold.v1"
SIMPLE_CLIENT: Final = "simple-client"

_PATIENCE_S: Final = 60.0


class SimpleClientError(LocalError):
    """The cloud did not accept what the simple client sent, for `reason`."""

    def __init__(self, thing: str, reason: str) -> None:
        self.thing, self.reason = thing, reason
        super().__init__(f"{thing} could not publish: {reason}; see the emulator's log")


def event_for(home: str, id: str, type: str, data: Mapping[str, Any], **extensions: str) -> Envelope:
    """Return an event that carers send to `home`."""
    now = timestamp(utc_now())
    attributes = {"id": id, "source": CARERS_SOURCE, "type": type, "todevice": home, **extensions}
    return write_event({**attributes, "time": now, "recordedtime": now}, data)


def send_as_carers(plane: Plane, sent: SentLog, homes: Mapping[str, Home]) -> None:
    """Register `homes`, and send each a message and a threshold while the link of one of them is cut."""
    for name in homes:
        plane.register(name)
    away = next(iter(homes.values())).link
    away.cut()
    for name in homes:
        message = {"text": "Good morning. We come at ten today."}
        limit = {"reading": "pulse", "high": 110}
        for event in (
            event_for(name, f"good-morning-{name}", MESSAGE, message),
            event_for(name, f"pulse-1-{name}", THRESHOLD, limit, statekey="threshold/home/pulse"),
        ):
            sent.event(event, plane.contract.participants[CARERS].outbox, Place.CLOUD)
            plane.send_from_carers(event.json)
    away.heal()


def send_without_forwarder(supervisor: Supervisor, plane: Plane, sent: SentLog) -> None:
    """Publish good and malformed payloads from a device straight to the cloud."""
    thing = plane.provision(SIMPLE_CLIENT, supervisor.run_dir / SIMPLE_CLIENT)
    payloads = cloud_payloads(f"/homes/{SIMPLE_CLIENT}/health-service")
    for payload in payloads:
        sent.cloud_payload(payload)
    _publish(thing, plane.outputs["IngestRule"], [each.payload for each in payloads])


def _publish(thing: Thing, rule: str, payloads: Iterable[bytes]) -> None:
    """Publish each payload to the thing's outbox at QoS 1. Raises `SimpleClientError`."""
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
        if not connected.wait(_PATIENCE_S) or answers[0].is_failure:
            raise SimpleClientError(thing.name, str(answers[0]) if answers else "no answer to CONNECT")
        for payload in payloads:
            message = client.publish(basic_ingest_topic(rule, thing.name), payload, qos=1)
            message.wait_for_publish(_PATIENCE_S)
            if not message.is_published():
                raise SimpleClientError(thing.name, "no PUBACK")
    except RuntimeError as error:  # of a publish without a connection
        raise SimpleClientError(thing.name, str(error)) from error
    finally:
        client.disconnect()
        client.loop_stop()
