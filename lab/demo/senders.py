"""Senders beside the homes: carers in the cloud, and a device without a forwarder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
from tests.integration.mqtt import TestClient

MESSAGE: Final = "org.eventplane.home.message.v1"
THRESHOLD: Final = "org.eventplane.home.threshold.v1"
SIMPLE_CLIENT: Final = "simple-client"

_PATIENCE_S: Final = 60.0


class SimpleClientError(LocalError):
    """The cloud did not acknowledge what the simple client sent."""

    def __init__(self, thing: str) -> None:
        self.thing = thing
        super().__init__(f"{thing} got no PUBACK; see the emulator's log")


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
    """Publish good and malformed payloads from a device straight to the cloud. Raises `SimpleClientError`."""
    thing = plane.provision(SIMPLE_CLIENT, supervisor.run_dir / SIMPLE_CLIENT)
    payloads = cloud_payloads(f"/homes/{SIMPLE_CLIENT}/health-service")
    for payload in payloads:
        sent.cloud_payload(payload)
    topic = basic_ingest_topic(plane.outputs["IngestRule"], thing.name)
    with TestClient.of_thing(thing) as client:
        if not client.publish_all(topic, [each.payload for each in payloads], _PATIENCE_S):
            raise SimpleClientError(thing.name)
