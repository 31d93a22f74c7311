"""What operators do when an event did not arrive, and the smoke test of an environment.

That an audit reports a loss, and the next one no more, is in tests/spark/test_audit.py."""

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope, Sender, write_event
from eventplane.limits import MAX_RECEIVES
from eventplane.names import VERDICT
from eventplane.sending import stamp_sender
from glue_jobs.delivery_audit.event_group import ReplayRow
from lab.cloud import CloudEndpoint
from lab.plane import Plane, invoke
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


ROOT = Path(__file__).parents[2]
STEPS = [
    "deployment", "certificate", "connection", "send", "command", "other device's topic", "decommissioning",
    "notification", "canary", "event", "alarm", "malformed message", "forged event", "archive", "audit",
]  # fmt: skip
USER = "smoke-tester"


def environment(cloud: CloudEndpoint, folder: Path) -> dict[str, str]:
    """What a person exports before `make smoke`, where devices connect elsewhere than to AWS."""
    ca = folder / "ca.pem"
    ca.write_text(cloud.ca_pem)
    return {
        **cloud.environment(),
        "EVENTPLANE_DEVICE_ENDPOINT": f"{cloud.mqtt_host}:{cloud.mqtt_port}",
        "EVENTPLANE_DEVICE_CA": str(ca),
    }


def smoke(environment: Mapping[str, str], contract: Path) -> subprocess.Popen[str]:
    """Start the command, whose result is JSON."""
    words = ["smoke", "--env", "local", "--json", "--contract", str(contract)]
    return subprocess.Popen(
        [sys.executable, "-m", "eventplane", *words],
        env=dict(environment), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result_of(command: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for its end, and return the result with the exit `status`."""
    output, problems = command.communicate()
    assert output, problems
    found: dict[str, Any] = json.loads(output)
    return {**found, "status": command.returncode}


def statuses(result: Mapping[str, Any]) -> dict[str, str]:
    return {each["step"]: each["status"] for each in result["steps"]}


class Left:
    """What a run could leave in the account."""

    def __init__(self, plane: Plane, inboxes: Inboxes) -> None:
        self._plane, self._inboxes = plane, inboxes
        # Its thing and certificate stay from its first run on.
        invoke(plane.cloud, "eventplane-local-canary", {"do": "alarm"})
        self.before = self._all()
        # What earlier tests left there would keep the run from looking.
        self._came()

    def nothing(self, run: str) -> None:
        """Assert that nothing is there that was not before, and nothing desired of or sent by `run`."""
        assert self._all() == self.before
        table = self._plane.outputs["DesiredTable"]
        assert run not in json.dumps(self._plane.cloud.client("dynamodb").scan(TableName=table)["Items"])
        assert not [each for each in self._came() if run in each.json]

    def _came(self) -> list[Envelope]:
        """Empty the inboxes, and return all that ever came into one and was not taken by the run."""
        return [each for service in self._plane.inboxes for each in self._inboxes.events(service)]

    def _all(self) -> dict[str, set[str]]:
        cloud, outputs = self._plane.cloud, self._plane.outputs
        iot, dynamodb = cloud.client("iot"), cloud.client("dynamodb")
        subscribed = cloud.client("sns").list_subscriptions()["Subscriptions"]
        queues = cloud.client("sqs").get_paginator("list_queues").paginate()
        return {
            "certificates": {each["certificateId"] for each in iot.list_certificates()["certificates"]},
            "things": {each["thingName"] for each in iot.list_things()["things"]},
            "queues": {url for page in queues for url in page.get("QueueUrls", [])},
            "subscriptions": {each["SubscriptionArn"] for each in subscribed},
            "devices": {
                each["thing"]["S"] for each in dynamodb.scan(TableName=outputs["FleetTable"])["Items"]
            },
        }


@pytest.fixture
def left(plane: Plane, inboxes: Inboxes) -> Left:
    return Left(plane, inboxes)


def test_every_step_passes(emulator: CloudEndpoint, contract_file: Path, left: Left, tmp_path: Path) -> None:
    result = result_of(smoke(environment(emulator, tmp_path), contract_file))
    unsound = [each for each in result["steps"] + result["removed"] if each.get("status") != "passed"]
    assert (result["status"], result["passed"]) == (0, True), json.dumps(unsound, indent=1)
    assert statuses(result) == dict.fromkeys(STEPS, "passed")
    for each in result["steps"]:
        if each["step"] not in ("connection", "send", "other device's topic", "audit"):
            assert each["requests"], f"no request of {each['step']}"
            assert each["reference"]
    measured = {each["step"] for each in result["steps"] if each["latency_s"] is not None}
    assert {"certificate", "command", "notification", "canary", "event", "alarm"} <= measured
    assert not [each for each in result["removed"] if each["problem"]]
    left.nothing(result["run"])
    prefix = "state ALARM of "
    raised = [each["what"].removeprefix(prefix) for each in result["removed"] if prefix in each["what"]]
    assert raised
    alarms = emulator.client("cloudwatch").describe_alarms(AlarmNames=raised)["MetricAlarms"]
    assert "ALARM" not in {each["StateValue"] for each in alarms}


def test_interrupts_clean_up(
    emulator: CloudEndpoint, contract_file: Path, left: Left, tmp_path: Path
) -> None:
    command = smoke(environment(emulator, tmp_path), contract_file)
    assert command.stderr is not None
    for line in command.stderr:
        if line.startswith("connection: passed"):
            break
    command.send_signal(signal.SIGINT)
    result = result_of(command)
    assert (result["status"], result["passed"]) == (1, False)
    assert statuses(result)["connection"] == "passed"
    left.nothing(result["run"])
