"""The deployed IoT policies, enforced: device, claim and renewal do what they need, and nothing else.

What is refused of another device's topics and names is in tests/adversary/test_stolen_certificate.py.
"""

import stat
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from eventplane.topics import RENEWAL_CLIENT_PREFIX, basic_ingest_topic, device_topic
from lab.plane import Plane
from lab.things import Authority, Thing
from tests.integration.cloud import make_claim
from tests.integration.mqtt import TestClient

READ_SECONDS = 20
REFUSAL_SECONDS = 5.0

NUMBERS = count(1)


def provisioned(plane: Plane, directory: Path) -> Thing:
    """A device as the demo provisions it: a name has one connection at a time."""
    return plane.provision(f"device-{next(NUMBERS)}", directory)


@pytest.fixture(scope="module")
def thing(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Thing:
    return provisioned(plane, tmp_path_factory.mktemp("device"))


@pytest.fixture
def own_thing(plane: Plane, tmp_path: Path) -> Thing:
    """A device for a test that ends its service."""
    return provisioned(plane, tmp_path / "device")


@pytest.fixture(scope="module")
def holders(plane: Plane, thing: Thing, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Thing]:
    """Who connects, with which certificate, under a name that its policy allows."""
    iot, renewing = plane.cloud.client("iot"), provisioned(plane, tmp_path_factory.mktemp("renewing"))
    (arn,) = iot.list_thing_principals(thingName=renewing.name)["principals"]
    iot.attach_policy(policyName="eventplane-local-renewal", target=arn)
    return {
        "device": thing,
        "claim": make_claim(plane.cloud, plane.outputs["ClaimPolicy"], tmp_path_factory.mktemp("claim")),
        "renewal": replace(renewing, name=f"{RENEWAL_CLIENT_PREFIX}{renewing.name}"),
    }


def device_of(holders: Mapping[str, Thing], holder: str) -> str:
    """The device that a holder is or, with the claim, would like to be."""
    return holders["device" if holder == "claim" else holder].name.removeprefix(RENEWAL_CLIENT_PREFIX)


@pytest.mark.source("P2")
def test_a_device_reads_its_own_inbox(plane: Plane, thing: Thing) -> None:
    inbox = device_topic(thing.name, "inbox")
    with TestClient.of_thing(thing) as device:
        assert not device.is_refused_to(inbox)
        plane.cloud.client("iot-data").publish(topic=inbox, qos=1, payload=b"{}")
        assert device.arrived.wait(READ_SECONDS)
    assert device.messages == [(inbox, b"{}")]


@pytest.mark.parametrize(
    ("holder", "topic"),
    [
        ("device", device_topic("yours", "outbox")),
        ("device", basic_ingest_topic("another_rule", "{device}")),
        ("device", "eventplane/voice-service/outbox"),
        ("claim", device_topic("{device}", "outbox")),
        ("claim", basic_ingest_topic("{rule}", "{device}")),
        ("claim", "anything"),
        ("renewal", basic_ingest_topic("{rule}", "{device}")),
    ],
)
def test_elsewhere_is_refused(plane: Plane, holders: Mapping[str, Thing], holder: str, topic: str) -> None:
    target = topic.format(rule=plane.outputs["IngestRule"], device=device_of(holders, holder))
    with TestClient.of_thing(holders[holder]) as client:
        assert not client.publish(target, b"{}", REFUSAL_SECONDS)
        assert client.disconnected.is_set()


@pytest.mark.parametrize(
    ("holder", "topic"),
    [
        ("device", device_topic("+", "inbox")),
        ("device", device_topic("{device}", "+")),
        ("device", device_topic("{device}", "outbox")),
        ("device", "#"),
        ("device", "$aws/things/{device}/shadow/#"),
        ("claim", device_topic("{device}", "inbox")),
        ("claim", "#"),
        ("claim", "$aws/provisioning-templates/#"),
        ("renewal", device_topic("{device}", "inbox")),
    ],
)
def test_every_other_subscription_is_refused(holders: Mapping[str, Thing], holder: str, topic: str) -> None:
    with TestClient.of_thing(holders[holder]) as client:
        assert client.is_refused_to(topic.format(device=device_of(holders, holder)))


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        ("device", "claim-yours"),
        ("device", "renewal-yours"),
        ("claim", "{device}"),
        ("claim", RENEWAL_CLIENT_PREFIX + "{device}"),
    ],
)
def test_nobody_connects_under_another_name(holders: Mapping[str, Thing], holder: str, name: str) -> None:
    who = replace(holders[holder], name=name.format(device=device_of(holders, holder)))
    assert TestClient.of_thing(who).is_refused()
    assert not TestClient.of_thing(holders[holder]).is_refused()


@pytest.mark.parametrize("status", ["INACTIVE", "REVOKED", "detached from its thing"])
def test_a_certificate_out_of_service_opens_nothing(plane: Plane, own_thing: Thing, status: str) -> None:
    assert stat.S_IMODE(own_thing.key.stat().st_mode) == 0o600
    assert not TestClient.of_thing(own_thing).is_refused()
    iot = plane.cloud.client("iot")
    (arn,) = iot.list_thing_principals(thingName=own_thing.name)["principals"]
    if status.isupper():
        iot.update_certificate(certificateId=arn.rsplit("/", 1)[-1], newStatus=status)
    else:
        iot.detach_thing_principal(thingName=own_thing.name, principal=arn)
    assert TestClient.of_thing(own_thing).is_refused()


def test_a_certificate_of_another_authority_opens_nothing(thing: Thing, tmp_path: Path) -> None:
    forged = Authority(tmp_path / "elsewhere").issue(thing.name)
    assert TestClient.of_thing(replace(thing, certificate=forged.certificate, key=forged.key)).is_refused()
