"""What operators do when an event did not arrive: redrive dead letters, replay what an audit reports lost.

That an audit reports it, and the next one no more, is in tests/spark/test_audit.py.
"""

import gzip
import json
import time
from datetime import UTC, datetime

import pytest

from eventplane.envelope import Envelope, Sender, write_event
from eventplane.limits import MAX_RECEIVES
from eventplane.names import VERDICT
from eventplane.sending import stamp_sender
from glue_jobs.delivery_audit.event_group import ReplayRow
from lab.plane import Plane
from operations.command import END_UNKNOWN
from tests.adversary.forgeries import example
from tests.eventually import eventually
from tests.integration.cloud import SECONDS, Archive, Inboxes, Wanted, enter, lengths, output_of, run

READING = "org.eventplane.health.reading.v1"
ROUTE = "readings-to-care-analytics"


class World:
    """What a test does with the deployed plane and its archive."""

    def __init__(self, plane: Plane, inboxes: Inboxes, archive: Archive) -> None:
        self.plane = plane
        self.archive = archive
        self._inboxes = inboxes
        self.accepted_ms = time.time_ns() // 1_000_000
        self.sent = write_event(
            {"id": f"replayed-{self.accepted_ms}", "source": "/homes/replayed/health", "type": READING},
            {"quantity": "body-weight", "value": 1.50, "unit": "kg"},
        )

    def enter(self) -> None:
        """As the ingest rule does it: to the router and to the tap."""
        enter(self.plane, self.sent, "IngestUrl", "TapUrl", at_ms=self.accepted_ms)
        for folder in ("tap", "ledger"):
            assert eventually(lambda folder=folder: self.files(folder), SECONDS), folder
            (file,) = self.files(folder)
            assert eventually(lambda file=file: self.is_listed(file), SECONDS), folder

    def received(self, service: str, wanted: Wanted) -> Envelope:
        """The last event in an inbox that is `wanted`."""
        found = self._inboxes.find(service, wanted)
        assert found is not None, f"it did not come to {service}"
        return found

    def is_copy(self, event: Envelope) -> bool:
        """Whether it is the event, sent again by a replay."""
        return event.id == self.sent.id and "replayedtime" in event.attributes

    def files(self, folder: str) -> list[str]:
        """The objects of the archive with a row about the event."""
        found = self.archive.objects(folder)
        return [key for key, rows in found if any(self.sent.id in json.dumps(row) for row in rows)]

    def is_listed(self, file: str) -> bool:
        """Whether the function that wrote an object has listed it."""
        return any(key.startswith(f"written/{file}.") for key in self.archive.keys("written"))

    def lose(self) -> None:
        """The archive has no decision about the event."""
        for key, rows in list(self.archive.objects("ledger")):
            kept = [row for row in rows if row["id"] != self.sent.id]
            if kept != rows:
                body = "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in kept)
                self.write(key, body)

    def write(self, key: str, text: str) -> None:
        s3, bucket = self.archive.s3, self.archive.bucket
        s3.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text.encode()))

    def command(self, *words: str, status: int = 0) -> str:
        return output_of(self.plane.cloud, *words, status=status)


@pytest.fixture
def world(plane: Plane, inboxes: Inboxes, archive: Archive) -> World:
    return World(plane, inboxes, archive)


def test_what_an_audit_reports_lost_is_sent_again_and_traced(world: World) -> None:
    sent, day = world.sent, f"{datetime.fromtimestamp(world.accepted_ms / 1_000, UTC):%Y-%m-%d}"
    stamped = stamp_sender(sent, Sender("a"))
    world.enter()
    assert world.received("care-analytics", lambda each: each.id == sent.id) == stamped
    world.lose()

    (file,) = world.files("tap")
    version = world.plane.contract.version
    to = (ROUTE, "care-analytics.inbox", version)
    owed = ReplayRow(day, "a/", sent.source, sent.id, READING, "a", *to, world.accepted_ms, file)
    world.write(f"audit/replay/date={day}/rows.json.gz", json.dumps(owed._asdict()))
    assert "would be sent" in world.command("replay", "--date", day, "--dry-run")
    assert "1 deliveries of 1 events in 1 files: 1 orders sent" in world.command("replay", "--date", day)

    copy = world.received("care-analytics", world.is_copy)
    assert copy.json == f'{{"replayedtime":"{copy.attributes["replayedtime"]}",{stamped.json[1:]}'
    assert copy.key == stamped.key, "who has seen the event would not know its copy"
    assert eventually(lambda: world.files("ledger"), SECONDS)

    # Its reader leaves no receipts.
    traced = world.command("trace", sent.source, sent.id, "--json", status=END_UNKNOWN)
    (event,) = json.loads(traced)["events"]
    assert [(each["where"], each["what"]) for each in event["stations"]] == [
        ("IoT Core", "accepted"),
        ("replay", "in the inbox"),
    ]


def test_a_past_window_is_replayed_to_one_participant(world: World) -> None:
    world.enter()
    since, until = (
        datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        for at_ms in (world.accepted_ms, world.accepted_ms + 1)
    )
    world.command("replay", "--participant", "care-analytics", "--from", since, "--to", until)
    assert world.received("care-analytics", world.is_copy)


def test_the_verdict_of_an_audit_comes_to_operations(world: World) -> None:
    verdict = write_event(
        {"id": f"verdict-{world.accepted_ms}", "source": "/audit", "type": VERDICT}, example(VERDICT)
    )
    url = world.plane.outputs["AuditOutboxUrl"]
    world.plane.cloud.client("sqs").send_message(QueueUrl=url, MessageBody=verdict.json)
    came = world.received("operations", lambda each: each.id == verdict.id)
    assert (came.sender, came.data()) == (Sender(service="audit"), example(VERDICT))


def test_a_given_back_message_is_sent_back(world: World) -> None:
    cloud = world.plane.cloud
    sqs = cloud.client("sqs")
    queue = world.plane.outputs["CareAnalyticsInboxUrl"]
    letters = f"{queue}-dlq"
    for each in (queue, letters):
        sqs.purge_queue(QueueUrl=each)  # what other tests have left
    world.enter()

    def is_dead() -> bool:
        for _ in range(MAX_RECEIVES // 10):
            sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)
        return lengths(cloud, letters)[0] > 0

    assert eventually(is_dead, SECONDS)
    back = ("dead-letters", "redrive", world.sent.id, "--queue", "care-analytics.inbox")
    assert "receives_exhausted 1" in world.command("dead-letters", "list")
    (shown,) = json.loads(world.command("dead-letters", "show", world.sent.id, "--json"))
    assert (shown["kind"], shown["route"], shown["sender"]) == ("event", ROUTE, "a/")
    would = "care-analytics.inbox: 1 would move, nothing was changed\n"
    assert world.command(*back, "--dry-run") == would
    assert world.command(*back) == "care-analytics.inbox: 1 moved\n"
    assert world.received("care-analytics", lambda each: each.id == world.sent.id)
    assert run(cloud, "dead-letters", "show", world.sent.id).returncode == 1
