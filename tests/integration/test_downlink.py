"""From a cloud service into a home and back, through the deployed plane: nothing that can happen in between
loses the newest state, repeats an older one, or a command."""

import time
from itertools import count

import pytest

from lab.plane import Plane, invoke
from tests.integration.cloud import output_of
from tests.integration.downlink import MESSAGE, Home, wait_for
from tests.integration.mqtt import TestClient

RECONCILER = "eventplane-local-downlink-reconciler"
NUMBERS = count(1)


@pytest.fixture
def home(cloud_home: Home) -> Home:
    return cloud_home


@pytest.fixture
def key() -> str:
    """The key of a threshold that no other test has."""
    return f"threshold/home/pulse-{next(NUMBERS)}"


def test_a_state_survives_kills(plane: Plane, home: Home, key: str) -> None:
    plane.threshold(home.name, 1, key)
    wait_for(lambda: plane.is_stored(home.name, key, 1))
    assert home.current(key) == 1
    wait_for(lambda: home.versions(key)[-1:] == [1])
    assert key in output_of(plane.cloud, "desired", "list", home.name)

    home.forwarder.kill()
    plane.threshold(home.name, 2, key)
    wait_for(lambda: plane.state(home.name, key) in ("pending", "sending"))
    home.forwarder.start()
    wait_for(lambda: plane.is_stored(home.name, key, 2))
    assert home.current(key) == 2
    wait_for(lambda: home.versions(key)[-1:] == [2])
    assert home.versions(key) == sorted(home.versions(key))


@pytest.mark.source("K7", "N6")
def test_a_return_brings_what_waited(plane: Plane, home: Home, key: str) -> None:
    plane.threshold(home.name, 1, key)
    wait_for(lambda: plane.is_stored(home.name, key, 1))
    home.link.cut()
    door = f"command/home/door-{next(NUMBERS)}"
    for number in (1, 2, 3):
        plane.threshold(home.name, number + 1, key)
        names = {"todevice": home.name, "statekey": door, "stateversion": str(number)}
        plane.send("Carers", MESSAGE, f"m{number}-{door}", {"text": f"{number}"}, **names)
        # A standard queue keeps no order: what is in the table does.
        wait_for(lambda number=number: plane.commands(home.name, door) == number)  # type: ignore[misc]
    wait_for(lambda: plane.waits(home.name, key, 4))
    assert home.current(key) == 1
    home.link.heal()
    wait_for(lambda: plane.is_stored(home.name, key, 4))

    def messages() -> list[str]:
        return list(dict.fromkeys(each.id for each in home.came if each.id.endswith(door)))

    wait_for(lambda: len(messages()) == 3)
    assert messages() == [f"m{number}-{door}" for number in (1, 2, 3)]
    assert home.current(key) == 4


def test_a_device_that_lost_its_state_gets_everything_again(plane: Plane, home: Home, key: str) -> None:
    other = f"{key}-weight"
    plane.threshold(home.name, 1, key)
    plane.threshold(home.name, 7, other)
    wait_for(lambda: plane.is_stored(home.name, key, 1) and plane.is_stored(home.name, other, 7))
    home.forwarder.stop()
    home.forget()
    home.forwarder.start()
    wait_for(lambda: (home.current(key), home.current(other)) == (1, 7))
    wait_for(lambda: plane.is_stored(home.name, key, 1) and plane.is_stored(home.name, other, 7))
    item = plane.item(home.name, key)
    assert item.fence > 0


@pytest.mark.source("K-B5")
def test_the_session_that_stays_gets_the_newest_state(plane: Plane, home: Home, key: str) -> None:
    """Two connections of one device push each other out; whoever is left has to hear."""
    for version in (1, 2, 3):
        with TestClient.of_thing(home.thing) as intruder:
            intruder.subscribe(f"devices/{home.name}/inbox")
            plane.threshold(home.name, version, key)
            # The forwarder comes back, and pushes it out.
            assert intruder.disconnected.wait(60)
    wait_for(lambda: plane.is_stored(home.name, key, 3))
    assert home.current(key) == 3
    assert home.versions(key) == sorted(home.versions(key))


def test_a_reset_allows_any_version(plane: Plane, home: Home, key: str) -> None:
    mistake = time.time_ns() // 1_000_000 + 23 * 3_600_000
    plane.threshold(home.name, mistake, key)
    wait_for(lambda: plane.is_stored(home.name, key, mistake))
    home.link.cut()
    output_of(plane.cloud, "desired", "reset", key, "--device", home.name)
    wait_for(lambda: '"reset": "2' in output_of(plane.cloud, "desired", "show", key, "--json"))
    plane.threshold(home.name, 7, key)
    wait_for(lambda: plane.waits(home.name, key, 7))
    assert home.current(key) == mistake
    home.link.heal()
    wait_for(lambda: plane.is_stored(home.name, key, 7))
    assert home.current(key) == 7


@pytest.mark.source("K1", "K6")
def test_the_reconciler_finds_what_nobody_saw(plane: Plane, home: Home, key: str) -> None:
    home.forwarder.stop()
    plane.threshold(home.name, 1, key)
    wait_for(lambda: plane.state(home.name, key) == "pending")
    plane.cloud.client("dynamodb").update_item(
        TableName=plane.outputs["DesiredTable"],
        Key={"thing": {"S": home.name}, "sk": {"S": f"s#{key}"}},
        UpdateExpression="SET due_at_ms = :now",
        ExpressionAttributeValues={":now": {"N": "1"}},
    )
    assert invoke(plane.cloud, RECONCILER, {"buckets": list(range(16))})["is_complete"]
    item = plane.item(home.name, key)
    assert item.due_at_ms is not None
    assert item.due_at_ms > 1

    output_of(plane.cloud, "fleet", "decommission", home.name)
    assert plane.item(home.name, key) is None
