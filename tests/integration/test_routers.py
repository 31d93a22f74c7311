"""The deployed routers: published contracts, failures on the way, ordered channels, the urgent lane."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import ContractTable, Head, published
from eventplane.envelope import Envelope, Sender, pack_texts, write_event
from eventplane.resource_names import resource_name
from eventplane.sending import stamp_sender
from eventplane.sqs_binding import to_message
from eventplane.topics import basic_ingest_topic, urgent_rule
from eventplane_client.dynamodb_duplicates import TABLE, DynamoDbFilter
from eventplane_client.inbox import Inbox
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.sqs import SqsTransport
from lab.cloud import CloudEndpoint, function_logs
from lab.plane import Plane
from tests.eventually import eventually
from tests.integration.cloud import (
    ROUND,
    SECONDS,
    VISIT,
    Archive,
    Inboxes,
    enter,
    grown_contract,
    lengths,
    run,
)
from tests.integration.mqtt import TestClient

NUMBERS = count(1)
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
    return run(plane.cloud, "contract", "publish", "--env", "local", "--contract", str(file), *options)


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
    table = ContractTable(plane.tables, plane.outputs["ContractsTable"])
    table.contracts.force(published(broken))
    head = Head(plane.contract.version, broken.version, new.version, "2026-01-01T00:00:00Z")
    table.heads.force(head)
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


def said(cloud: CloudEndpoint, function: str, *words: str) -> bool:
    """Whether a line of the function's log has all these words."""
    logged = function_logs(cloud, f"eventplane-local-{function}")
    return any(all(word in each["message"] for word in words) for _, each in logged)


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
    thing = plane.provision("router-thing", tmp_path / "device")
    alarm = event("org.eventplane.alarm.keyword.v1")
    with away(plane, plane.outputs["IngestUrl"]), TestClient.of_thing(thing) as device:
        topic = basic_ingest_topic(plane.outputs["IngestRule"], thing.name)
        assert device.publish(topic, alarm.json.encode())
        # The rule tries once: only its error action knows of the event now.
        assert eventually(lambda: said(emulator, "ingest-errors", "a rule failed", thing.name), SECONDS)
    assert inboxes.arrives("family-app", delivered(alarm, thing.name))


SOURCES = ("/watch/east", "/watch/west")
ROUNDS = 12


def send(cloud: CloudEndpoint, url: str, event: Envelope) -> None:
    message = to_message(event)
    cloud.client("sqs").send_message(
        QueueUrl=url,
        MessageBody=message.body,
        MessageGroupId=message.group,
        MessageDeduplicationId=message.deduplication,
    )


def night_round(source: str, number: int, **attributes: str) -> Envelope:
    return write_event({"id": str(number), "source": source, "type": ROUND, **attributes})


@pytest.mark.source("P17", "N3")
def test_each_source_arrives_in_its_order_and_once(
    emulator: CloudEndpoint, outputs: Mapping[str, str], inboxes: Inboxes
) -> None:
    outbox = outputs["NightWatchOutboxUrl"]
    assert outbox.endswith(".fifo")
    for number in range(ROUNDS):
        for source in SOURCES:
            send(emulator, outbox, night_round(source, number))
            send(emulator, outbox, night_round(source, number))  # a sender that got no answer

    assert eventually(lambda: len(inboxes.events("night-watch")) >= ROUNDS * len(SOURCES), SECONDS)
    by_source = defaultdict(list)
    for event in inboxes.events("night-watch"):
        by_source[event.source].append(int(event.id))
    assert by_source == {source: list(range(ROUNDS)) for source in SOURCES}


@pytest.mark.source("P17", "F3")
def test_readers_of_a_standard_inbox_get_what_a_service_numbered_in_order(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    """Sent in reverse, as a standard queue may deliver; the second reader goes on where the first stopped."""
    order = OutboxOrder(grown_contract(), "day-watch")
    visits = [
        order.numbered(write_event({"id": str(number), "source": "/watch", "type": VISIT}))
        for number in range(ROUNDS)
    ]
    sqs, dynamodb = emulator.client("sqs"), emulator.client("dynamodb")
    for visit in reversed(visits):
        sqs.send_message(QueueUrl=outputs["DayWatchOutboxUrl"], MessageBody=visit.json)
    found: list[str] = []
    for _ in range(2):
        transport = SqsTransport.find("day-watch", "local", sqs, max_receives=5)
        table = resource_name("local", TABLE)
        filter = DynamoDbFilter(dynamodb, table, "day-watch", lease=lambda: SECONDS)
        with Inbox("day-watch", transport, filter) as inbox:
            found += [inbox.get(SECONDS).id for _ in range(ROUNDS // 2)]
    assert found == [str(number) for number in range(ROUNDS)]


DEVICE_ROUTER = "eventplane-local-router-device"
FRAMES = 60


@pytest.fixture
def standstill(emulator: CloudEndpoint, outputs: Mapping[str, str]) -> Iterator[None]:
    """The router of all that is not urgent gets nothing: a flood that never ends looks like this to it."""
    mapping = emulator.client("lambda").list_event_source_mappings(FunctionName=DEVICE_ROUTER)
    (id,) = [each["UUID"] for each in mapping["EventSourceMappings"]]
    emulator.client("lambda").update_event_source_mapping(UUID=id, Enabled=False)
    yield
    emulator.client("lambda").update_event_source_mapping(UUID=id, Enabled=True)
    # And what stood there was not lost.
    assert eventually(lambda: sum(lengths(emulator, outputs["IngestUrl"])) == 0, SECONDS)


def reading(id: str) -> str:
    data = '{"sensor": "s", "quantity": "temperature", "value": 20.5, "unit": "Cel"}'
    return write_event(
        {"id": id, "source": "/homes/a/s", "type": "org.eventplane.climate.reading.v1"}, data
    ).json


@pytest.mark.usefixtures("standstill")
def test_an_alarm_arrives_while_all_telemetry_stands(plane: Plane, inboxes: Inboxes, tmp_path: Path) -> None:
    thing, rule = plane.provision("flooded-home", tmp_path / "device"), plane.outputs["IngestRule"]
    alarm = write_event(
        {"id": "flooded-1", "source": "/homes/a/voice", "type": "org.eventplane.alarm.keyword.v1"}
    )
    flood = [pack_texts([reading(f"{frame}-{n}") for n in range(20)]) for frame in range(FRAMES)]
    with TestClient.of_thing(thing) as device:
        assert device.publish_all(basic_ingest_topic(rule, thing.name), flood)
        assert device.publish(basic_ingest_topic(urgent_rule(rule), thing.name), pack_texts([alarm.json]))

    assert inboxes.arrives("alarm-centre", stamp_sender(alarm, Sender(thing.name)))
    assert sum(lengths(plane.cloud, plane.outputs["IngestUrl"])) == FRAMES
    # The archive has both lanes.
    assert eventually(lambda: sum(lengths(plane.cloud, plane.outputs["TapUrl"])) == 0, SECONDS)
