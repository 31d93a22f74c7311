"""An event that got lost on the way: an audit misses it, and the replay sends it again.

That the next audit has it then, tests/spark/test_audit_judged.py shows.
"""

from __future__ import annotations

import gzip
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.names import VERDICT
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from local.audits import fetch, read_report
from local.plane import Plane
from tests.eventually import eventually
from tests.integration.archive import Archive
from tests.integration.commands import output_of
from tests.integration.inboxes import Inboxes, Wanted, enter

SECONDS = 60
READING = "org.eventplane.health.reading.v1"
ROUTE = "readings-to-care-analytics"


class World:
    """What a test does with the deployed plane and its archive."""

    def __init__(self, plane: Plane, inboxes: Inboxes, archive: Archive, directory: Path) -> None:
        self.plane = plane
        self.archive = archive
        self._inboxes = inboxes
        self.directory = directory
        self.accepted_ms = time.time_ns() // 1_000_000
        self.sent = write_event(
            {"id": f"replayed-{self.accepted_ms}", "source": "/homes/replayed/health", "type": READING},
            {"quantity": "body-weight", "value": 1.50, "unit": "kg"},
        )

    def enter(self) -> None:
        """As the ingest rule does it: to the router and to the tap."""
        enter(self.plane, self.sent, "IngestUrl", "TapUrl", at_ms=self.accepted_ms)

    def received(self, service: str, wanted: Wanted) -> Envelope:
        """The last event in an inbox that is `wanted`."""
        found = self._inboxes.find(service, wanted)
        assert found is not None, f"it did not come to {service}"
        return found

    def is_ours(self, event: Envelope) -> bool:
        return event.id == self.sent.id

    def is_copy(self, event: Envelope) -> bool:
        """Whether it is the event, sent again by a replay."""
        return self.is_ours(event) and "replayedtime" in event.attributes

    def is_in(self, folder: str) -> bool:
        """Whether the archive has a row about the event."""
        return any(self.sent.id in json.dumps(row) for row in self.archive.rows(folder))

    def lose(self) -> None:
        """Nobody ever decided on the event, as far as the archive knows."""
        for key, rows in list(self.archive.objects("ledger")):
            kept = [row for row in rows if row["id"] != self.sent.id]
            if kept != rows:
                body = "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in kept)
                self.write(key, body)

    def write(self, key: str, text: str) -> None:
        s3, bucket = self.archive.s3, self.archive.bucket
        s3.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text.encode()))

    def audit(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What the audit finds of the event, and what it lists to be sent again."""
        copy = self.directory / "archive"
        fetch(self.archive.s3, self.archive.bucket, copy, lambda _done, _of: None)
        output = self.directory / "audit"
        options = ["--INPUT", str(copy), "--OUTPUT", str(output), "--DATE", "all", "--LATENESS_S", "0"]
        self.command("glue_jobs.delivery_audit", *options, "--OUTBOX", self.plane.outputs["AuditOutboxUrl"])
        report = read_report(output)
        rows = [
            json.loads(line)
            for file in (output / "replay").rglob("*.json.gz")
            for line in gzip.decompress(file.read_bytes()).splitlines()
        ]
        # Without a lateness every record is late.
        findings = [each for each in report["findings"] if each["kind"] != "late"]
        mine = [[each for each in found if each["id"] == self.sent.id] for found in (findings, rows)]
        return mine[0], mine[1]

    def replay(self, *options: str) -> str:
        return self.command("eventplane", "replay", *options)

    def command(self, module: str, *arguments: str) -> str:
        return output_of(self.plane.cloud, *arguments, program=("-m", module))


@pytest.fixture
def world(plane: Plane, inboxes: Inboxes, archive: Archive, tmp_path: Path) -> World:
    return World(plane, inboxes, archive, tmp_path)


def test_what_an_audit_misses_is_sent_again_and_traced(world: World) -> None:
    sent, day = world.sent, f"{datetime.fromtimestamp(world.accepted_ms / 1_000, UTC):%Y-%m-%d}"
    stamped = stamp_sender(sent, Sender("a"))
    world.enter()
    assert world.received("care-analytics", world.is_ours) == stamped
    for folder in ("tap", "ledger"):
        assert eventually(lambda folder=folder: world.is_in(folder), SECONDS), folder
    world.lose()

    findings, (owed,) = world.audit()
    assert [(each["kind"], each["route"]) for each in findings] == [("lost", ROUTE)]
    told = world.received("operations", lambda each: each.type == VERDICT)
    assert told.data()["verdict"] == "broken"

    world.write(f"audit/replay/date={day}/rows.json.gz", json.dumps(owed))
    assert "would be sent" in world.replay("--date", day, "--dry-run")
    assert "1 deliveries of 1 events in 1 files: 1 orders sent" in world.replay("--date", day)

    copy = world.received("care-analytics", world.is_copy)
    assert copy.json == f'{{"replayedtime":"{copy.attributes["replayedtime"]}",{stamped.json[1:]}'
    assert copy.key == stamped.key, "who has seen the event would not know its copy"
    assert eventually(lambda: world.is_in("ledger"), SECONDS)

    traced = json.loads(world.command("eventplane", "trace", sent.source, sent.id, "--json"))
    (event,) = traced["events"]
    assert [(each["where"], each["what"]) for each in event["stations"]] == [
        ("IoT Core", "accepted"),
        ("replay", "delivered"),
    ]


def test_a_past_window_is_replayed_to_one_participant(world: World) -> None:
    world.enter()
    assert eventually(lambda: world.is_in("tap"), SECONDS)
    since, until = (
        datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        for at_ms in (world.accepted_ms, world.accepted_ms + 1)
    )
    world.replay("--participant", "care-analytics", "--from", since, "--to", until)
    assert world.received("care-analytics", world.is_copy)


def test_what_is_no_order_is_a_dead_letter(world: World, inboxes: Inboxes) -> None:
    url = world.plane.outputs["ReplayUrl"]
    sent = world.plane.cloud.client("sqs").send_message(QueueUrl=url, MessageBody="by mistake")
    letter = inboxes.letter(lambda each: each.id == f"{sent['MessageId']}.bad_order")
    assert letter.attributes["deadletterreason"] == "bad_order"
