"""The deployed routers: they follow a published contract, and what fails on the way comes again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import Head, contract_item, head_item
from eventplane.envelope import Envelope, write_event
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from eventplane.topics import basic_ingest_topic
from local.cloud import CloudEndpoint
from local.emulator import kill_functions
from local.plane import Plane
from local.things import provision
from tests.eventually import eventually
from tests.integration.archive import Archive
from tests.integration.inboxes import Inboxes, enter
from tests.integration.mqtt import TestClient

SECONDS = 60
NUMBERS = count(1)
ROOT = Path(__file__).parents[2]
NEW = "org.eventplane.activity.new.v1"
"""A type that devices may send, and that no route leads to the alarm centre."""


def event(type: str) -> Envelope:
    return write_event({"id": f"router-{next(NUMBERS)}", "source": "/homes/a/test", "type": type})


def delivered(sent: Envelope, device: str = "a") -> Envelope:
    """What `device` sent, as it comes into an inbox."""
    return stamp_sender(sent, Sender(device))


def with_route(contract: Contract, type: str, to: str, **participants: Any) -> Contract:
    document = json.loads(contract.canonical)
    document["participants"].update(participants)
    document["routes"][f"new-to-{to.partition('.')[0]}"] = {"filter": {"exact": {"type": type}}, "to": to}
    return compile_contract(document, type)


def publish(
    plane: Plane, directory: Path, contract: Contract, *options: str
) -> subprocess.CompletedProcess[str]:
    file = directory / "contract.json"
    file.write_bytes(contract.canonical)
    words = ["contract", "publish", "--env", "local", "--contract", str(file), *options]
    return subprocess.run(
        [sys.executable, "-m", "eventplane", *words],
        cwd=ROOT, env=plane.cloud.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.source("P1", "P-W8")
def test_events_follow_a_published_route_and_nothing_that_is_broken_replaces_it(
    plane: Plane, inboxes: Inboxes, archive: Archive, tmp_path: Path
) -> None:
    new = with_route(plane.contract, NEW, "alarm-centre.inbox")
    done = publish(plane, tmp_path, new)
    assert done.returncode == 0, done.stderr

    def follows() -> bool:
        sent = event(NEW)
        enter(plane, sent)
        return inboxes.arrives("alarm-centre", delivered(sent), 3)

    assert eventually(follows, SECONDS)

    # The command refuses what is not deployed; whoever goes past it is refused by the routers.
    nobody = {"nobody": {"kind": "cloud_service", "description": "Has no queue."}}
    broken = with_route(new, "org.example.broken.v1", "nobody.inbox", **nobody)
    refused = publish(plane, tmp_path, broken)
    assert refused.returncode == 1
    assert "nobody.inbox" in refused.stderr
    dynamodb = plane.cloud.client("dynamodb")
    table = plane.outputs["ContractsTable"]
    dynamodb.put_item(TableName=table, Item=contract_item(broken))
    head = Head(plane.contract.version, broken.version, new.version, "2026-01-01T00:00:00Z")
    dynamodb.put_item(TableName=table, Item=head_item(head))
    for _ in range(3):
        sent = event(NEW)
        enter(plane, sent)
        assert inboxes.arrives("alarm-centre", delivered(sent))

    def versions() -> set[str]:
        """Of the contracts in the archive, where the ledger writer files them."""
        return {Path(each).stem for each in archive.keys("contracts")}

    assert eventually(lambda: new.version in versions(), SECONDS)
    assert broken.version not in versions()
    assert publish(plane, tmp_path, new, "--withdraw").returncode == 0


@pytest.mark.source("P5")
def test_a_router_can_be_killed_and_what_comes_next_is_routed(plane: Plane, inboxes: Inboxes) -> None:
    """The chaos runs kill functions by what the emulator sets in their environment."""
    alarm = event("org.eventplane.alarm.keyword.v1")
    enter(plane, alarm)
    assert inboxes.arrives("alarm-centre", delivered(alarm))
    assert kill_functions(plane.cloud, "router-device") > 0
    alarm = event("org.eventplane.alarm.keyword.v1")
    enter(plane, alarm)
    assert inboxes.arrives("alarm-centre", delivered(alarm))


def said(cloud: CloudEndpoint, function: str, *words: str) -> bool:
    """Whether a line of the function's log has all these words."""
    log = cloud.client("logs").filter_log_events(logGroupName=f"/aws/lambda/eventplane-local-{function}")
    return any(all(word in each["message"] for word in words) for each in log["events"])


@contextmanager
def away(plane: Plane, url: str) -> Iterator[None]:
    """The queue at `url` is not there for a while."""
    sqs = plane.cloud.client("sqs")
    names: list[Any] = ["VisibilityTimeout", "RedrivePolicy"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    sqs.delete_queue(QueueUrl=url)
    try:
        yield
    finally:
        sqs.create_queue(QueueName=url.rpartition("/")[2], Attributes=attributes)


def is_recorded(archive: Archive, sent: Envelope) -> bool:
    """Whether the ledger has a decision on the event."""
    return any(row["id"] == sent.id for row in archive.rows("ledger"))


@pytest.mark.source("P4")
def test_an_urgent_event_is_recorded_by_the_ledger_s_queue_and_without_it_in_the_archive(
    plane: Plane, inboxes: Inboxes, archive: Archive
) -> None:
    alarm = event("org.eventplane.alarm.keyword.v1")
    enter(plane, alarm, "UrgentIngestUrl")
    assert inboxes.arrives("alarm-centre", delivered(alarm))
    assert eventually(lambda: is_recorded(archive, alarm), SECONDS)
    alarm = event("org.eventplane.alarm.keyword.v1")
    with away(plane, plane.outputs["LedgerUrl"]):
        enter(plane, alarm, "UrgentIngestUrl")
        assert inboxes.arrives("alarm-centre", delivered(alarm))
        # Nobody but the router can have written it.
        assert eventually(lambda: is_recorded(archive, alarm), SECONDS)


def test_an_event_waits_for_an_inbox_that_is_away_and_comes_soon_after(
    plane: Plane, inboxes: Inboxes
) -> None:
    alarm = event("org.eventplane.alarm.keyword.v1")
    with away(plane, plane.inboxes["alarm-centre"]):
        enter(plane, alarm)
        # Relatives have it: the alarm was routed, and its message has failed for the other inbox.
        assert inboxes.arrives("family-app", delivered(alarm))
    # Without a wait of its own the message would be hidden for three minutes.
    assert inboxes.arrives("alarm-centre", delivered(alarm))


def test_what_the_rule_cannot_hand_over_arrives_all_the_same(
    emulator: CloudEndpoint, plane: Plane, inboxes: Inboxes, tmp_path: Path
) -> None:
    policy = plane.outputs["DevicePolicy"]
    thing = provision(emulator, "router-thing", policy=policy, directory=tmp_path / "device")
    alarm = event("org.eventplane.alarm.keyword.v1")
    with away(plane, plane.outputs["IngestUrl"]), TestClient.of_thing(thing) as device:
        topic = basic_ingest_topic(plane.outputs["IngestRule"], thing.name)
        assert device.publish(topic, alarm.json.encode())
        # The rule tries once: only its error action knows of the event now.
        assert eventually(lambda: said(emulator, "ingest-errors", "a rule failed", thing.name), SECONDS)
    assert inboxes.arrives("family-app", delivered(alarm, thing.name))


def test_what_is_no_failure_of_a_rule_is_a_dead_letter(plane: Plane, inboxes: Inboxes) -> None:
    sqs = plane.cloud.client("sqs")
    sent = sqs.send_message(QueueUrl=plane.outputs["IngestErrorsUrl"], MessageBody="by mistake")
    letter = inboxes.letter(lambda each: each.id == sent["MessageId"])
    assert letter.attributes["deadletterreason"] == "bad_rule_failure"
