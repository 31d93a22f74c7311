"""Announced interest, with a real Mosquitto at both ends and the forwarder as a process."""

from __future__ import annotations

import pytest

from contract.loader import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.device_reports import UPLINK_KEY
from eventplane.envelope import Envelope, write_event
from eventplane.interest.uplink import uplink_interest_event
from tests.integration.edge.conftest import SECONDS, Home, RecordingCloud, down, wait_for

MOTION = "org.eventplane.activity.motion.v1"
DOOR = "org.eventplane.activity.door.v1"
ALARM = "org.eventplane.alarm.keyword.v1"
DOORS = {"exact": {"type": DOOR}}
ANNOUNCED = "voice-service announced what it handles"
ENDED = "voice-service announces nothing any more"


def plane() -> Contract:
    """The shipped contract; the voice service reads activities too, and devices ask what the cloud wants."""
    document = contract_document(load_contract())
    document["participants"]["device"]["outbox"]["forward"] = "wanted"
    document["routes"]["activities-to-voice"] = {
        "filter": {"prefix": {"type": "org.eventplane.activity."}},
        "to": "voice-service.inbox",
    }
    return compile_contract(document, "test")


@pytest.fixture
def home_contract() -> Contract:
    return plane()


def event(id: str, type: str) -> Envelope:
    return write_event({"id": id, "source": "/homes/1/activity", "type": type}, {"state": "moved"})


def test_what_is_not_handled_does_not_come_until_it_is_withdrawn(home: Home, cloud: RecordingCloud) -> None:
    came: list[str] = []
    voice = home.listen("voice-service", lambda each: came.append(each.id), handles=[DOORS])
    wait_for(lambda: home.logged(ANNOUNCED) == 1)
    sensor = home.connect("activity-service")
    sensor.put(event("1", MOTION), SECONDS)
    sensor.put(event("2", DOOR), SECONDS)
    wait_for(lambda: came == ["2"])
    wait_for(lambda: home.metric("eventplane_unwanted_total") == 1)
    wait_for(lambda: cloud.has({"1", "2"}))
    voice.withdraw()
    wait_for(lambda: home.logged(ENDED) == 1)
    sensor.put(event("3", MOTION), SECONDS)
    wait_for(lambda: came == ["2", "3"])


@pytest.mark.source("C8", "C10")
def test_it_is_known_again_after_the_broker_and_the_forwarder_were_killed(home: Home) -> None:
    came: list[str] = []
    home.listen("voice-service", lambda each: came.append(each.id), handles=[DOORS])
    wait_for(lambda: home.logged(ANNOUNCED) == 1)
    sensor = home.connect("activity-service")
    for number, kill in enumerate((home.broker.child, home.forwarder), start=2):
        known, connected = home.logged(ANNOUNCED), home.logged("local broker connected")
        kill.kill()
        kill.start()
        # Of the service over its own new connection, or of what the broker kept.
        wait_for(lambda: home.logged(ANNOUNCED) > known)  # noqa: B023
        wait_for(lambda: home.logged("local broker connected") > connected)  # noqa: B023
        sensor.put(event(f"motion-{number}", MOTION), SECONDS)
        sensor.put(event(f"door-{number}", DOOR), SECONDS)
        wait_for(lambda: f"door-{number}" in came)  # noqa: B023
    assert not [each for each in came if each.startswith("motion")]


def wanted(version: int, *filters: object, deleted: bool = False) -> str:
    """What the cloud says that it wants."""
    event = uplink_interest_event(
        None if deleted else filters, id=f"interest-{version}", time="2026-01-01T00:00:00Z", device="*"
    )
    return down(event.json, "operations", UPLINK_KEY, version=version, is_deleted=deleted)


@pytest.mark.source("C8")
def test_the_device_sends_up_what_the_cloud_wants_and_what_is_urgent(
    home: Home, cloud: RecordingCloud
) -> None:
    sensor, voice = home.connect("activity-service"), home.connect("voice-service")
    sensor.put(event("1", MOTION), SECONDS)
    wait_for(lambda: cloud.has({"1"}))  # while nobody knows
    cloud.send_until_answered(wanted(1, DOORS), UPLINK_KEY, 1)
    sensor.put(event("2", MOTION), SECONDS)
    voice.put(event("3", ALARM), SECONDS)
    sensor.put(event("4", DOOR), SECONDS)
    wait_for(lambda: cloud.has({"3", "4"}))
    cloud.send_until_answered(wanted(2, deleted=True), UPLINK_KEY, 2)
    sensor.put(event("5", MOTION), SECONDS)
    wait_for(lambda: cloud.has({"5"}))
    # Of one source and priority the order is kept: what did not come before was not sent.
    assert not cloud.has({"2"})
