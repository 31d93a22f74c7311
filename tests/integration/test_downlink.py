"""From a cloud service into a home and back, through the deployed plane: nothing that can happen in between
loses the newest state, repeats an older one, or a command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from eventplane.device_reports import UPLINK_INTEREST_TYPE, UPLINK_KEY
from local.cloud import CloudEndpoint
from local.demo.plane import deploy_plane
from local.process import Supervisor
from tests.integration.downlink import CONTRACT, MESSAGE, Home, Plane, running_home, wait_for
from tests.integration.mqtt import TestClient

RECONCILER = "eventplane-local-downlink-reconciler"
PULSE = "threshold/home/pulse"
DOOR = "command/home/door"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def plane(emulator: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Plane:
    """The plane's own stacks, deployed."""
    with Supervisor(tmp_path_factory.mktemp("plane")) as supervisor:
        return Plane(emulator, deploy_plane(supervisor, emulator).outputs)


def command(plane: Plane, *arguments: str) -> str:
    """What an operator's command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "eventplane", *arguments, "--env", "local"],
        env=plane.cloud.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(plane: Plane, supervisor: Supervisor, tmp_path: Path) -> Iterator[Home]:
    """A home of its own for each test; its name is not that of a device of another test."""
    name = f"downlink-{next(NUMBERS)}"
    command(plane, "fleet", "register", name)
    with running_home(plane, supervisor, tmp_path / name, name) as it:
        yield it


def test_a_state_arrives_is_told_to_who_asks_and_survives_whatever_is_killed(
    plane: Plane, home: Home
) -> None:
    plane.threshold(home.name, 1, PULSE)
    wait_for(lambda: plane.is_stored(home.name, PULSE, 1))
    assert home.current(PULSE) == 1
    wait_for(lambda: home.versions(PULSE)[-1:] == [1])
    assert f"{PULSE}" in command(plane, "desired", "list", home.name)

    home.forwarder.kill()
    plane.threshold(home.name, 2, PULSE)
    wait_for(lambda: plane.state(home.name, PULSE) in ("pending", "sending"))
    home.forwarder.start()
    wait_for(lambda: plane.is_stored(home.name, PULSE, 2))
    assert home.current(PULSE) == 2
    wait_for(lambda: home.versions(PULSE)[-1:] == [2])
    assert home.versions(PULSE) == sorted(home.versions(PULSE))


@pytest.mark.source("K7", "N6")
def test_what_waits_for_a_home_that_is_cut_off_comes_with_its_return(plane: Plane, home: Home) -> None:
    plane.threshold(home.name, 1, PULSE)
    wait_for(lambda: plane.is_stored(home.name, PULSE, 1))
    home.link.cut()
    for number in (1, 2, 3):
        plane.threshold(home.name, number + 1, PULSE)
        names = {"todevice": home.name, "statekey": DOOR, "stateversion": str(number)}
        plane.send("Carers", MESSAGE, f"m{number}", {"text": f"{number}"}, **names)
        # A standard queue keeps no order: what is in the table does.
        wait_for(lambda number=number: plane.commands(home.name, DOOR) == number)  # type: ignore[misc]
    wait_for(lambda: plane.waits(home.name, PULSE, 4))
    assert home.current(PULSE) == 1
    home.link.heal()
    wait_for(lambda: plane.is_stored(home.name, PULSE, 4))
    wait_for(lambda: len({each.id for each in home.came if each.type == MESSAGE}) == 3)
    messages = [each.id for each in home.came if each.type == MESSAGE]
    assert list(dict.fromkeys(messages)) == ["m1", "m2", "m3"]
    assert home.current(PULSE) == 4


def test_a_device_that_lost_its_state_gets_everything_again(plane: Plane, home: Home) -> None:
    other = "threshold/home/weight"
    plane.threshold(home.name, 1, PULSE)
    plane.threshold(home.name, 7, other)
    wait_for(lambda: plane.is_stored(home.name, PULSE, 1) and plane.is_stored(home.name, other, 7))
    home.forwarder.stop()
    home.forget()
    home.forwarder.start()
    wait_for(lambda: (home.current(PULSE), home.current(other)) == (1, 7))
    wait_for(lambda: plane.is_stored(home.name, PULSE, 1) and plane.is_stored(home.name, other, 7))
    item = plane.item(home.name, PULSE)
    assert item is not None
    assert item.fence > 0


@pytest.mark.source("K-B5")
def test_the_session_that_stays_gets_the_newest_state(plane: Plane, home: Home) -> None:
    """Two connections of one device push each other out; whoever is left has to hear."""
    for version in (1, 2, 3):
        with TestClient.of_thing(home.thing) as intruder:
            intruder.subscribe(f"devices/{home.name}/inbox")
            plane.threshold(home.name, version, PULSE)
            # The forwarder comes back, and pushes it out.
            assert intruder.disconnected.wait(60)
    wait_for(lambda: plane.is_stored(home.name, PULSE, 3))
    assert home.current(PULSE) == 3
    assert home.versions(PULSE) == sorted(home.versions(PULSE))


def test_what_a_device_rejects_is_a_dead_letter_and_not_sent_again(plane: Plane, home: Home) -> None:
    id, key = f"broken-{home.name}", "contract/device/care-at-home"
    names = {"todevice": home.name, "statekey": key, "stateversion": "1"}
    plane.send("Operations", CONTRACT, id, {"format": 4, "name": "care-at-home", "routes": {}}, **names)
    wait_for(lambda: plane.state(home.name, key) == "rejected")
    original_of = f"{home.name}: "
    wait_for(lambda: any(original_of in str(each) for each in plane.letters_about(original_of)))
    (letter,) = plane.letters_about(original_of)
    assert letter["reason"] == "contract_refused"


@pytest.mark.source("K-B3")
def test_a_deleted_and_made_again_object_is_right_in_every_order(plane: Plane, home: Home) -> None:
    for number, order in enumerate(((1, 2, 3), (3, 2, 1), (2, 3, 1), (1, 3, 2))):
        key = f"threshold/home/order-{number}"
        for version in order:
            new = {"stateuid": "b"} if version == 3 else {"stateuid": "a"}
            plane.threshold(home.name, version, key, **new, **({"statedelete": True} if version == 2 else {}))
        wait_for(lambda key=key: plane.is_stored(home.name, key, 3))  # type: ignore[misc]
        assert home.current(key) == 3
        plane.threshold(home.name, 4, key, stateuid="b", statedelete=True)
        wait_for(lambda key=key: home.current(key) is None)  # type: ignore[misc]


def test_one_event_for_all_reaches_every_home_and_the_unknown_ones_are_letters(
    plane: Plane, home: Home
) -> None:
    version = time.time_ns() // 1_000_000
    names = {"todevice": "*", "statekey": UPLINK_KEY, "stateversion": str(version)}
    plane.send("Operations", UPLINK_INTEREST_TYPE, f"all-{home.name}", None, statedelete=True, **names)
    wait_for(lambda: plane.is_stored(home.name, UPLINK_KEY, version))
    # By the contract carers may address one home at a time.
    key = f"threshold/all/{home.name}"
    plane.threshold("*", 5, key)
    refused = "carers addressed all devices"
    wait_for(lambda: any(each["reason"] == "address_not_allowed" for each in plane.letters_about(refused)))
    assert plane.item(home.name, key) is None
    plane.threshold("nobody", 1, f"threshold/nobody/{home.name}")
    wait_for(lambda: any(each["reason"] == "unknown_device" for each in plane.letters_about("nobody")))


def test_a_version_that_was_too_great_by_mistake_is_followed_by_any_after_a_reset(
    plane: Plane, home: Home
) -> None:
    key = f"threshold/home/reset-{home.name}"
    mistake = time.time_ns() // 1_000_000 + 23 * 3_600_000
    plane.threshold(home.name, mistake, key)
    wait_for(lambda: plane.is_stored(home.name, key, mistake))
    plane.threshold(home.name, 10**18 - 1, key)
    wait_for(lambda: any(each["reason"] == "version_jump" for each in plane.letters_about(str(10**18 - 1))))

    home.link.cut()
    command(plane, "desired", "reset", key, "--device", home.name)
    wait_for(lambda: '"reset": "2' in command(plane, "desired", "show", key, "--json"))
    plane.threshold(home.name, 7, key)
    wait_for(lambda: plane.waits(home.name, key, 7))
    assert home.current(key) == mistake
    home.link.heal()
    wait_for(lambda: plane.is_stored(home.name, key, 7))
    assert home.current(key) == 7


@pytest.mark.source("K1", "K6")
def test_the_reconciler_finds_what_nobody_else_saw_and_a_device_that_goes_leaves_nothing(
    plane: Plane, home: Home
) -> None:
    home.forwarder.stop()
    plane.threshold(home.name, 1, PULSE)
    wait_for(lambda: plane.state(home.name, PULSE) == "pending")
    plane.cloud.client("dynamodb").update_item(
        TableName=plane.outputs["DesiredTable"],
        Key={"thing": {"S": home.name}, "sk": {"S": f"s#{PULSE}"}},
        UpdateExpression="SET due_at_ms = :now",
        ExpressionAttributeValues={":now": {"N": "1"}},
    )
    payload = json.dumps({"buckets": list(range(16))}).encode()
    answer = plane.cloud.client("lambda").invoke(FunctionName=RECONCILER, Payload=payload)
    assert json.loads(answer["Payload"].read())["is_complete"]
    item = plane.item(home.name, PULSE)
    assert item is not None
    assert item.due_at_ms is not None
    assert item.due_at_ms > 1

    command(plane, "fleet", "decommission", home.name)
    assert plane.item(home.name, PULSE) is None
