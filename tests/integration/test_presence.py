"""Presence in the deployed plane: a real connection is cut, reported by its timer, comes back, and carers and
relatives are told."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from eventplane.device_reports import HEARTBEAT, forwarder_source
from eventplane.envelope import Envelope, write_event
from eventplane.names import CONNECTED, NOTICE, QUIET, RECOVERED
from eventplane.topics import basic_ingest_topic
from lab.cloud import CloudEndpoint
from lab.demo.faults import judging
from lab.plane import Plane
from lab.things import Thing
from tests.eventually import eventually
from tests.integration.cloud import Inboxes
from tests.integration.mqtt import TestClient

pytestmark = pytest.mark.source("P9")

SCHEDULE = "eventplane-local-presence-reconcile-0"
PATIENCE_SECONDS = 60
SCHEDULE_SECONDS = 100
"""The schedule comes once a minute."""

NUMBERS = count(1)


class Presence:
    """The deployed plane, and what arrived for the devices of these tests."""

    def __init__(self, plane: Plane, inboxes: Inboxes) -> None:
        self.cloud = plane.cloud
        self.outputs = plane.outputs
        self._inboxes = inboxes

    def told(self, service: str, device: str) -> list[Envelope]:
        """The different events about `device` in an inbox so far, in the order of their time."""
        events = {each.id: each for each in self._inboxes.events(service)}
        mine = [each for each in events.values() if each.attributes.get("subject") == device]
        return sorted(mine, key=lambda each: str(each.attributes["time"]))

    def types(self, device: str) -> list[str]:
        return [each.type for each in self.told("operations", device)]

    def phases(self, device: str) -> list[tuple[str, str]]:
        notices = self.told("carers", device)
        assert {each.type for each in notices} <= {NOTICE}
        return [(data["phase"], data["reason"]) for data in (each.data() for each in notices)]

    def publish_heartbeat(self, device: TestClient, name: str, sequence: int, interval_s: float) -> None:
        event = write_event(
            {"id": f"{name}-{sequence}", "source": forwarder_source(name), "type": HEARTBEAT},
            {"interval_s": interval_s, "figures": {"oldest_urgent_s": 0.0, "oldest_normal_s": 0.0}},
        )
        topic = basic_ingest_topic(self.outputs["IngestRule"], name)
        assert device.publish(topic, event.json.encode())


@pytest.fixture(scope="module")
def presence(plane: Plane, inboxes: Inboxes) -> Presence:
    return Presence(plane, inboxes)


@pytest.fixture
def thing(plane: Plane, tmp_path: Path) -> Thing:
    name = f"watched-{next(NUMBERS)}"
    return plane.provision(name, tmp_path / name)


def comes(condition: Callable[[], bool]) -> bool:
    """Whether `condition()` holds in time, with nobody who calls anything."""
    return eventually(condition, PATIENCE_SECONDS)


@pytest.fixture
def timers(plane: Plane) -> Iterator[None]:
    """Timers fire, as they do everywhere but here."""
    with judging(plane.cloud):
        yield


@contextmanager
def scheduled(cloud: CloudEndpoint) -> Iterator[None]:
    """The reconciler's schedule is on, and timers count as lost at once."""
    client = cloud.client("scheduler")
    schedule = client.get_schedule(Name=SCHEDULE)
    names = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    settings = {name: schedule[name] for name in names}
    given = json.loads(settings["Target"]["Input"])
    now = settings | {"Target": settings["Target"] | {"Input": json.dumps(given | {"overdue_ms": 0})}}
    client.update_schedule(**now, State="ENABLED")
    try:
        yield
    finally:
        client.update_schedule(**settings, State="DISABLED")


@pytest.mark.usefixtures("timers")
def test_a_silent_device_is_reported(presence: Presence, thing: Thing) -> None:
    with TestClient.of_thing(thing) as device:
        presence.publish_heartbeat(device, thing.name, 1, interval_s=1)
        assert comes(lambda: ("opened", "no_heartbeat") in presence.phases(thing.name))
        presence.publish_heartbeat(device, thing.name, 2, interval_s=300)
        assert comes(lambda: ("over", "no_heartbeat") in presence.phases(thing.name))
        assert comes(lambda: presence.types(thing.name).count(RECOVERED) == 1)
        assert sorted(presence.types(thing.name)) == [CONNECTED, QUIET, RECOVERED]


def test_the_schedule_finds_a_device_whose_timer_is_lost(presence: Presence, thing: Thing) -> None:
    dynamodb, key = presence.cloud.client("dynamodb"), {"device": {"S": thing.name}}

    def is_due() -> bool:
        item = dynamodb.get_item(TableName=presence.outputs["PresenceTable"], Key=key).get("Item", {})
        return 0 < int(item.get("due_ms", {"N": "0"})["N"]) <= time.time_ns() // 1_000_000

    with TestClient.of_thing(thing):
        # The schedule, which comes once a minute, comes at once where it was off for longer.
        assert comes(is_due)
        with scheduled(presence.cloud):
            assert eventually(lambda: presence.types(thing.name) == [CONNECTED], SCHEDULE_SECONDS)
