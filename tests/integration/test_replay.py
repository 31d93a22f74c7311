"""An event that got lost on the way: an audit misses it, the replay sends it again, the next audit has it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import VERDICT
from eventplane.sender import Sender
from eventplane.sending import stamp_sender
from eventplane.sqs_binding import split
from local.audits import fetch, read_report
from local.demo.plane import Plane
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
SECONDS = 60
READING = "org.eventplane.health.reading.v1"
ROUTE = "readings-to-care-analytics"


class World:
    """What a test does with the deployed plane and its archive."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self.plane = plane
        self.sqs, self.s3 = plane.cloud.client("sqs"), plane.cloud.client("s3")
        self.bucket = plane.outputs["ArchiveBucket"]
        self.directory = directory
        self.accepted_ms = time.time_ns() // 1_000_000
        self.sent = write_event(
            {"id": f"replayed-{self.accepted_ms}", "source": "/homes/replayed/health", "type": READING},
            {"quantity": "body-weight", "value": 1.50, "unit": "kg"},
        )

    def enter(self) -> None:
        """As the ingest rule does it: to the router and to the tap."""
        frame = IngestFrame(self.sent.json.encode(), "devices/a/outbox", "a", "", self.accepted_ms)
        for way in ("IngestUrl", "TapUrl"):
            self.sqs.send_message(QueueUrl=self.plane.outputs[way], MessageBody=frame_text(frame))

    def received(self, service: str, wanted: str) -> Envelope:
        """The next event with the id or type `wanted` in an inbox; what came before is taken away."""
        url, found = self.plane.inboxes[service], []

        def look() -> bool:
            answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                events = [parse_event(text) for text in split(message["Body"])]
                found.extend(event for event in events if wanted in (event.id, event.type))
            return bool(found)

        assert eventually(look, SECONDS), f"{wanted} did not come to {service}"
        return found[0]

    def lines(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The archive's lines about the event, each with its object's key."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{folder}/")
        for key in [each["Key"] for page in pages for each in page.get("Contents", [])]:
            body = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            for line in gzip.decompress(body).splitlines():
                if self.sent.id.encode() in line:
                    yield key, json.loads(line)

    def lose(self) -> None:
        """Nobody ever decided on the event, as far as the archive knows."""
        for key in {key for key, _ in self.lines("ledger")}:
            body = gzip.decompress(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())
            others = [line for line in body.splitlines(keepends=True) if self.sent.id.encode() not in line]
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=gzip.compress(b"".join(others)))

    def audit(self, number: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What the audit finds of the event, and what it lists to be sent again."""
        copy = self.directory / f"archive-{number}"
        fetch(self.s3, self.bucket, copy, lambda _done, _of: None)
        output = self.directory / f"audit-{number}"
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
        return self.command("eventplane", "replay", "--env", "local", *options)

    def command(self, module: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=self.plane.cloud.environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def world(plane: Plane, tmp_path: Path) -> World:
    return World(plane, tmp_path)


def test_what_an_audit_misses_is_replayed_and_the_next_audit_has_it(world: World) -> None:
    sent, day = world.sent, f"{datetime.fromtimestamp(world.accepted_ms / 1_000, UTC):%Y-%m-%d}"
    stamped = stamp_sender(sent, Sender("a"))
    world.enter()
    assert world.received("care-analytics", sent.id) == stamped
    for folder in ("tap", "ledger"):
        assert eventually(lambda folder=folder: any(world.lines(folder)), SECONDS), folder
    world.lose()

    findings, (owed,) = world.audit(1)
    assert [(each["kind"], each["route"]) for each in findings] == [("lost", ROUTE)]
    assert world.received("operations", VERDICT).data()["verdict"] == "broken"

    world.s3.put_object(
        Bucket=world.bucket,
        Key=f"audit/replay/date={day}/rows.json.gz",
        Body=gzip.compress(json.dumps(owed).encode()),
    )
    assert "would be sent" in world.replay("--date", day, "--dry-run")
    assert "1 deliveries of 1 events in 1 files: 1 orders sent" in world.replay("--date", day)

    copy = world.received("care-analytics", sent.id)
    assert copy.json == f'{{"replayedtime":"{copy.attributes["replayedtime"]}",{stamped.json[1:]}'
    assert copy.key == stamped.key, "who has seen the event would not know its copy"
    assert eventually(lambda: any(world.lines("ledger")), SECONDS)

    assert world.audit(2) == ([], [])
    traced = json.loads(
        world.command("eventplane", "trace", sent.source, sent.id, "--env", "local", "--json")
    )
    (event,) = traced["events"]
    assert [(each["where"], each["what"]) for each in event["stations"]] == [
        ("IoT Core", "accepted"),
        ("replay", "delivered"),
    ]


def test_a_past_window_is_replayed_to_one_participant(world: World) -> None:
    world.enter()
    world.received("care-analytics", world.sent.id)
    assert eventually(lambda: any(world.lines("tap")), SECONDS)
    since, until = (
        datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        for at_ms in (world.accepted_ms, world.accepted_ms + 1)
    )
    world.replay("--participant", "care-analytics", "--from", since, "--to", until)
    assert "replayedtime" in world.received("care-analytics", world.sent.id).attributes


def test_what_is_no_order_is_a_dead_letter(world: World) -> None:
    url = world.plane.outputs["ReplayUrl"]
    sent = world.sqs.send_message(QueueUrl=url, MessageBody="by mistake")
    letter = world.received("operations", f"{sent['MessageId']}.bad_order")
    assert letter.attributes["deadletterreason"] == "bad_order"
