"""The deployed device policy, enforced: a device does what its own outbox needs, and nothing else."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from eventplane.envelope import write_event
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from local.certificates import Authority
from local.cloud import CloudEndpoint
from local.plane import Plane
from local.things import Thing, provision
from tests.integration.inboxes import Inboxes
from tests.integration.mqtt import TestClient

READ_SECONDS = 20
REFUSAL_SECONDS = 5.0

NUMBERS = count(1)


def provisioned(plane: Plane, directory: Path) -> Thing:
    """A device as the demo provisions it: a name has one connection at a time."""
    return provision(
        plane.cloud, f"device-{next(NUMBERS)}", policy=plane.outputs["DevicePolicy"], directory=directory
    )


@pytest.fixture(scope="module")
def thing(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Thing:
    return provisioned(plane, tmp_path_factory.mktemp("device"))


@pytest.fixture
def own_thing(plane: Plane, tmp_path: Path) -> Thing:
    """A device for a test that ends its service."""
    return provisioned(plane, tmp_path / "device")


@pytest.mark.source("P2")
@pytest.mark.parametrize("lane", [str, urgent_rule])
def test_an_event_in_the_own_outbox_reaches_its_inbox(
    outputs: Mapping[str, str], inboxes: Inboxes, thing: Thing, lane: Callable[[str], str]
) -> None:
    alarm = write_event(
        {
            "id": f"{lane('lane')} {thing.name}",
            "source": "/homes/a/voice",
            "type": "org.eventplane.alarm.keyword.v1",
        }
    )
    with TestClient.of_thing(thing) as device:
        topic = basic_ingest_topic(lane(outputs["IngestRule"]), thing.name)
        assert device.publish(topic, alarm.json.encode())
    assert inboxes.arrives("alarm-centre", stamp_sender(alarm, Sender(thing.name)))


# What is refused of another device's topics and names is in tests/adversary/test_stolen_certificate.py.


@pytest.mark.parametrize(
    "topic",
    [
        device_topic("yours", "outbox"),
        basic_ingest_topic("another_rule", "{thing}"),
        "eventplane/voice-service/outbox",
    ],
)
def test_every_other_topic_is_refused_and_the_connection_closed(
    outputs: Mapping[str, str], thing: Thing, topic: str
) -> None:
    with TestClient.of_thing(thing) as device:
        target = topic.format(rule=outputs["IngestRule"], thing=thing.name)
        assert not device.publish(target, b"{}", REFUSAL_SECONDS)
        assert device.disconnected.is_set()


@pytest.mark.parametrize("name", ["claim-yours", "renewal-yours"])
def test_a_device_connects_under_its_own_name_only(thing: Thing, name: str) -> None:
    assert TestClient(name, thing.host, thing.port, thing).is_refused()
    assert not TestClient(thing.name, thing.host, thing.port, thing).is_refused()


@pytest.mark.parametrize(
    "topic",
    [
        device_topic("+", "inbox"),
        device_topic("{thing}", "+"),
        device_topic("{thing}", "outbox"),
        "#",
        "$aws/things/{thing}/shadow/#",
    ],
)
def test_every_other_subscription_is_refused(thing: Thing, topic: str) -> None:
    with TestClient.of_thing(thing) as device:
        assert device.is_refused_to(topic.format(thing=thing.name))


@pytest.mark.source("P2")
def test_the_own_inbox_is_the_only_one_to_read(emulator: CloudEndpoint, thing: Thing) -> None:
    inbox = device_topic(thing.name, "inbox")
    with TestClient.of_thing(thing) as device:
        assert not device.is_refused_to(inbox)
        emulator.client("iot-data").publish(topic=inbox, qos=1, payload=b"{}")
        assert device.arrived.wait(READ_SECONDS)
    assert device.messages == [(inbox, b"{}")]


@pytest.mark.parametrize("status", ["INACTIVE", "REVOKED"])
def test_a_certificate_out_of_service_opens_nothing(
    emulator: CloudEndpoint, own_thing: Thing, status: str
) -> None:
    assert stat.S_IMODE(own_thing.key.stat().st_mode) == 0o600
    assert not TestClient.of_thing(own_thing).is_refused()
    iot = emulator.client("iot")
    (arn,) = iot.list_thing_principals(thingName=own_thing.name)["principals"]
    iot.update_certificate(certificateId=arn.rsplit("/", 1)[-1], newStatus=status)
    assert TestClient.of_thing(own_thing).is_refused()


def test_a_certificate_without_its_thing_opens_nothing(emulator: CloudEndpoint, own_thing: Thing) -> None:
    iot = emulator.client("iot")
    (arn,) = iot.list_thing_principals(thingName=own_thing.name)["principals"]
    iot.detach_thing_principal(thingName=own_thing.name, principal=arn)
    assert TestClient.of_thing(own_thing).is_refused()


def test_a_certificate_of_another_authority_opens_nothing(thing: Thing, tmp_path: Path) -> None:
    forged = Authority(tmp_path / "elsewhere").issue(thing.name)
    forger = replace(thing, certificate=forged.certificate, key=forged.key)
    assert TestClient.of_thing(forger).is_refused()
