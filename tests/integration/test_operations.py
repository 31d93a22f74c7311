"""What an operator does when events do not arrive, with the deployed plane."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.topics import basic_ingest_topic
from local.cloud import CloudEndpoint
from local.plane import Plane
from local.things import Thing, provision
from tests.eventually import eventually
from tests.integration import commands
from tests.integration.mqtt import TestClient

READ_SECONDS = 20
PATIENCE_SECONDS = 60.0
SOURCE = "/homes/operated/health"
READING = "org.eventplane.health.reading.v1"
NUMBERS = count(1)

KILLED_BETWEEN = """
import os, signal, sys
from eventplane.__main__ import main
from operations import reading

reading.HOLD_S = 1  # or the next run would have to wait two minutes for the message
reading.Reading.delete = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[1:]))
"""
"""The command line, which dies between sending and deleting."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(emulator: CloudEndpoint) -> Run:
    """Runs `eventplane` in the emulated cloud."""
    return partial(commands.run, emulator)


@pytest.fixture(autouse=True)
def nothing_left(emulator: CloudEndpoint, plane: Plane) -> None:
    """Other modules' events are not in the inbox: what is first there is ours."""
    for each in ("Url", "DlqUrl"):
        emulator.client("sqs").purge_queue(QueueUrl=plane.outputs[f"CareAnalyticsInbox{each}"])


@pytest.fixture
def thing(emulator: CloudEndpoint, plane: Plane, tmp_path: Path) -> Thing:
    name = f"operated-{next(NUMBERS)}"
    return provision(emulator, name, policy=plane.outputs["DevicePolicy"], directory=tmp_path / "device")


@pytest.fixture
def publish(plane: Plane, thing: Thing) -> Callable[[bytes], None]:
    """Has the device publish a payload, as its forwarder does."""

    def publish(payload: bytes) -> None:
        with TestClient.of_thing(thing) as device:
            assert device.publish(basic_ingest_topic(plane.outputs["IngestRule"], thing.name), payload)

    return publish


def reading_event(**attributes: str) -> Envelope:
    return write_event(
        {"id": f"r-{next(NUMBERS)}", "source": SOURCE, "type": READING, **attributes},
        {"quantity": "heart-rate", "value": 1, "unit": "/min"},
    )


def poisoned(sqs: Any, plane: Plane) -> None:
    """What a reader does that gives a message back each time, until SQS has enough of it."""
    queue, letters = (plane.outputs[f"CareAnalyticsInbox{each}"] for each in ("Url", "DlqUrl"))

    def is_dead() -> bool:
        sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)
        names = ["ApproximateNumberOfMessages"]
        found = sqs.get_queue_attributes(QueueUrl=letters, AttributeNames=names)["Attributes"]
        return found["ApproximateNumberOfMessages"] != "0"

    assert eventually(is_dead, PATIENCE_SECONDS)


def received(sqs: Any, plane: Plane) -> str:
    """The body of the next message of the inbox, which is deleted."""
    queue = plane.outputs["CareAnalyticsInboxUrl"]
    (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=READ_SECONDS)["Messages"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return str(message["Body"])


def test_a_poisoned_message_is_found_explained_and_sent_back(
    emulator: CloudEndpoint, plane: Plane, thing: Thing, publish: Callable[[bytes], None], run: Run
) -> None:
    sqs = emulator.client("sqs")
    event = reading_event()
    publish(event.json.encode())
    poisoned(sqs, plane)
    back = ("dead-letters", "redrive", event.id, "--queue", "care-analytics.inbox")

    listed = run("dead-letters", "list")
    shown = json.loads(run("dead-letters", "show", event.id, "--json").stdout)
    tried = run(*back, "--dry-run")
    sent = run(*back)

    assert "receives_exhausted 1" in listed.stdout, listed.stderr
    assert [(each["kind"], each["route"]) for each in shown] == [("event", "readings-to-care-analytics")]
    assert [each["sender"] for each in shown] == [f"{thing.name}/"]
    assert tried.stdout == "care-analytics.inbox: 1 would move, nothing was changed\n", tried.stderr
    assert sent.stdout == "care-analytics.inbox: 1 moved\n", sent.stderr
    assert received(sqs, plane) == event.stamped(senderdevice=thing.name).json
    assert run("dead-letters", "show", event.id).returncode == 1


def test_killed_between_send_and_delete_nothing_is_lost(
    emulator: CloudEndpoint, plane: Plane, thing: Thing, publish: Callable[[bytes], None], run: Run
) -> None:
    sqs = emulator.client("sqs")
    event = reading_event()
    publish(event.json.encode())
    poisoned(sqs, plane)
    back = ("dead-letters", "redrive", event.id, "--queue", "care-analytics.inbox")

    assert run(*back, program=("-c", KILLED_BETWEEN)).returncode == -9

    assert received(sqs, plane) == event.stamped(senderdevice=thing.name).json
    assert eventually(lambda: run(*back).returncode == 0, PATIENCE_SECONDS)
    assert (
        received(sqs, plane) == event.stamped(senderdevice=thing.name).json
    )  # a duplicate, which at-least-once allows


def test_every_station_of_an_event_is_found(
    emulator: CloudEndpoint, plane: Plane, thing: Thing, publish: Callable[[bytes], None], run: Run
) -> None:
    delivered, expired = reading_event(), reading_event(expirytime="2020-01-01T00:00:00Z")
    refused = f"refused-{next(NUMBERS)}"
    publish(delivered.json.encode())
    publish(expired.json.encode())
    publish(json.dumps({"specversion": "1.0", "source": SOURCE, "id": refused}).encode())

    def traced(id: str) -> Any:
        found: list[Any] = []

        def is_whole() -> bool:
            done = run("trace", SOURCE, id, "--json")
            found.append(json.loads(done.stdout))
            return done.returncode == 0

        assert eventually(is_whole, PATIENCE_SECONDS), found[-1]
        (event,) = found[-1]["events"]
        assert event["sender"] == f"{thing.name}/"
        return event["stations"]

    accepted, decided = traced(delivered.id)
    assert (accepted["what"], accepted["device"]) == ("accepted", thing.name)
    assert (decided["what"], decided["destination"]) == ("delivered", "care-analytics.inbox")
    assert json.loads(received(emulator.client("sqs"), plane))["senderdevice"] == thing.name

    assert [each["what"] for each in traced(expired.id)] == ["accepted", "expired"]

    accepted, decided, told = traced(refused)
    assert (accepted["what"], accepted["refusal"]) == ("accepted, no event", "missing_attribute")
    assert (decided["what"], decided["reason"]) == ("dead_lettered", "missing_attribute")
    assert (told["what"], told["destination"]) == ("its dead letter delivered", "operations.inbox")

    unknown = run("trace", SOURCE, "never-sent")
    assert unknown.returncode == 1
    assert "missing: never reached the tap" in unknown.stdout
