"""The two sessions at a real Mosquitto: what is unknown becomes a dead letter, what comes again is known."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from tests.integration.edge.conftest import CloudBroker, Home, wait_for
from tests.integration.edge.test_operations import metric, problems
from tests.integration.mqtt import TestClient

READING = "org.eventplane.activity.motion.v1"
DEAD_LETTER = "org.eventplane.deadletter.v1"
BACKLOG = 18_000


def reading(number: int) -> Envelope:
    event = {"id": f"r{number}", "source": "/homes/1/activity", "type": READING}
    return write_event(event, {"number": number})


def letters(cloud: CloudBroker) -> dict[str, Any]:
    """The data of the dead letters by the channel that they name."""
    found = [each for each in cloud.events if each.type == DEAD_LETTER]
    return {json.loads(each.json)["data"]["channel"]: json.loads(each.json)["data"] for each in found}


def ready(home: Home) -> None:
    wait_for(lambda: problems(home) == [] and "urgent broker connected" in home.log())


@pytest.mark.source("F5")
def test_an_event_on_a_misspelt_topic_becomes_a_dead_letter(home: Home, cloud: CloudBroker) -> None:
    ready(home)
    topic = local_topic("activty-service", "outbox")
    with TestClient("activity", "127.0.0.1", home.broker.port) as client:
        assert client.publish(topic, reading(1).json.encode())
    wait_for(lambda: topic in letters(cloud))
    assert topic in letters(cloud)[topic]["detail"]


def test_a_payload_of_half_a_megabyte_becomes_a_dead_letter(home: Home, cloud: CloudBroker) -> None:
    ready(home)
    with TestClient("activity", "127.0.0.1", home.broker.port) as client:
        assert client.publish(local_topic("activity-service", "outbox"), b"x" * 500_000)
    wait_for(lambda: "activity-service.outbox" in letters(cloud))
    assert letters(cloud)["activity-service.outbox"]["original_bytes"] == 500_000


def test_whoever_sends_more_than_the_forwarder_can_read_loses_the_connection(home: Home) -> None:
    ready(home)
    with TestClient("activity", "127.0.0.1", home.broker.port) as client:
        client._client.publish(local_topic("activity-service", "outbox"), b"x" * 1_100_000, qos=1)
        wait_for(client.disconnected.is_set)
    assert "oversize packet" in home.broker.child.log.read_text().lower()
    assert problems(home) == []


def test_an_event_in_binary_mode_becomes_a_dead_letter_with_the_remedy(
    home: Home, cloud: CloudBroker
) -> None:
    ready(home)
    properties = Properties(PacketTypes.PUBLISH)
    attributes = {"id": "b1", "source": "/homes/1/activity", "type": READING, "specversion": "1.0"}
    properties.UserProperty = list(attributes.items())
    properties.ContentType = "application/json"
    client = Client(CallbackAPIVersion.VERSION2, client_id="b", protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", home.broker.port)
    client.loop_start()
    topic = local_topic("activity-service", "outbox")
    sent = client.publish(topic, b'{"number": 1}', qos=1, properties=properties)
    sent.wait_for_publish(10.0)
    client.disconnect()
    client.loop_stop()
    wait_for(lambda: "activity-service.outbox" in letters(cloud))
    letter = letters(cloud)["activity-service.outbox"]
    assert "structured mode" in letter["detail"]


def test_what_a_broker_sends_again_after_a_restart_is_stored_once(home: Home, cloud: CloudBroker) -> None:
    ready(home)
    home.forwarder.stop()
    sender = Client(CallbackAPIVersion.VERSION2, client_id="activity")
    sender.max_inflight_messages_set(1_000)
    sender.connect("127.0.0.1", home.broker.port)
    sender.loop_start()
    topic = local_topic("activity-service", "outbox")
    sent = [sender.publish(topic, reading(number).json, qos=1) for number in range(BACKLOG)]
    for each in sent:
        each.wait_for_publish(60.0)
    sender.disconnect()
    sender.loop_stop()
    home.forwarder.start()
    # It hands on whole windows for each PUBACK that it reads, and reads few: most are lost with it.
    wait_for(lambda: metric(home, "eventplane_stored_total") > 6_000)
    home.broker.child.stop()
    home.broker.child.start()
    wait_for(lambda: len({each.id for each in cloud.events if each.type == READING}) == BACKLOG)
    wait_for(home.drained)
    copies = Counter(each.id for each in cloud.events if each.type == READING)
    assert {name: count for name, count in copies.items() if count > 1} == {}
    assert metric(home, "eventplane_stored_total") < BACKLOG + 100
