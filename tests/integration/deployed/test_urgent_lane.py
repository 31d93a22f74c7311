"""However much telemetry waits, an alarm does not wait behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from eventplane.batch import pack_texts
from eventplane.envelope import write_event
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from eventplane.topics import basic_ingest_topic, urgent_rule
from local.cloud import CloudEndpoint
from local.things import provision
from tests.eventually import eventually
from tests.integration.inboxes import Inboxes
from tests.integration.mqtt import TestClient

ROUTER = "eventplane-local-router-device"
FRAMES = 60
SECONDS = 60


@pytest.fixture
def standstill(emulator: CloudEndpoint, outputs: Mapping[str, str]) -> Iterator[None]:
    """The router of all that is not urgent gets nothing: a flood that never ends looks like this to it."""
    mapping = emulator.client("lambda").list_event_source_mappings(FunctionName=ROUTER)
    (id,) = [each["UUID"] for each in mapping["EventSourceMappings"]]
    emulator.client("lambda").update_event_source_mapping(UUID=id, Enabled=False)
    yield
    emulator.client("lambda").update_event_source_mapping(UUID=id, Enabled=True)
    # And what stood there was not lost.
    assert eventually(lambda: waiting(emulator, outputs["IngestUrl"]) == 0, SECONDS)


def waiting(cloud: CloudEndpoint, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = cloud.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def reading(id: str) -> str:
    data = '{"sensor": "s", "quantity": "temperature", "value": 20.5, "unit": "Cel"}'
    return write_event(
        {"id": id, "source": "/homes/a/s", "type": "org.eventplane.climate.reading.v1"}, data
    ).json


@pytest.mark.usefixtures("standstill")
def test_an_alarm_arrives_while_all_telemetry_stands(
    emulator: CloudEndpoint, outputs: Mapping[str, str], inboxes: Inboxes, tmp_path: Path
) -> None:
    thing = provision(emulator, "flooded-home", policy=outputs["DevicePolicy"], directory=tmp_path / "device")
    rule = outputs["IngestRule"]
    alarm = write_event(
        {"id": "flooded-1", "source": "/homes/a/voice", "type": "org.eventplane.alarm.keyword.v1"}
    )
    flood = [pack_texts([reading(f"{frame}-{n}") for n in range(20)]) for frame in range(FRAMES)]
    with TestClient.of_thing(thing) as device:
        assert device.publish_all(basic_ingest_topic(rule, thing.name), flood)
        assert device.publish(basic_ingest_topic(urgent_rule(rule), thing.name), pack_texts([alarm.json]))

    assert inboxes.arrives("alarm-centre", stamp_sender(alarm, Sender(thing.name)))
    assert waiting(emulator, outputs["IngestUrl"]) == FRAMES
    # The archive has both lanes.
    assert eventually(lambda: waiting(emulator, outputs["TapUrl"]) == 0, SECONDS)
