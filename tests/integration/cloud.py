"""The deployed plane as tests use it: its contract, commands, users, archive and inboxes."""

import gzip
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import boto3
import pytest

from contract import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.sqs_binding import split
from eventplane.topics import CLAIM_CLIENT_PREFIX
from lab.cloud import CloudEndpoint
from lab.plane import Plane
from lab.things import Thing
from tests.eventually import eventually

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 60.0
"""How long an event may take on a busy machine; no test is about speed."""

ROUND: Final = "org.eventplane.round.v1"
VISIT: Final = "org.eventplane.visit.v1"
"""The types of the night watch's and the day watch's events, which come back to them."""
RESCUE: Final = "org.eventplane.rescue.v1"
"""The type of the events that voice-services send to the rescue service."""
HOOKED: Final = "rescue-service"
"""The participant whose inbox is a webhook."""

_NUMBERS = count(1)


def grown_contract(*, without_night_watch: bool = False) -> Contract:
    """The contract that is deployed: the shipped one, with participants for each kind of box.

    A night watch has FIFO queues and gets its own events, a day watch has standard ones that keep the order
    too, and the rescue service has a webhook.
    """
    document = contract_document(load_contract())
    participants, types, routes = (document[each] for each in ("participants", "event_types", "routes"))
    box = {"transport": "sqs_fifo", "ordering": "source"}
    service = {"kind": "cloud_service", "description": "Somebody is awake."}
    participants["night-watch"] = {**service, "inbox": box, "outbox": box, "sends": [ROUND]}
    participants["day-watch"] = {**service, "inbox": {"ordering": "source"}, "sends": [VISIT]}
    participants[HOOKED] = {**service, "inbox": {"webhook": {}}}
    participants["voice-service"]["sends"].append(RESCUE)
    for to, type in (("night-watch", ROUND), ("day-watch", VISIT), (HOOKED, RESCUE)):
        types[type] = {"description": "Somebody was there."}
        routes[f"to-{to}"] = {"filter": {"exact": {"type": type}}, "to": f"{to}.inbox"}
    if without_night_watch:
        del participants["night-watch"], routes["to-night-watch"]
    return compile_contract(document, "grown")


def run(
    cloud: CloudEndpoint, *words: str, program: tuple[str, ...] = ("-m", "eventplane")
) -> subprocess.CompletedProcess[str]:
    """Run `eventplane` with `words`; `program` may name another way to start it, or another module."""
    return subprocess.run(
        [sys.executable, *program, *words],
        env={**cloud.environment(), "EVENTPLANE_ENV": "local"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def output_of(cloud: CloudEndpoint, *words: str, status: int = 0) -> str:
    """The output of a command that has to end with `status`."""
    done = run(cloud, *words)
    assert done.returncode == status, done.stderr
    return done.stdout


def as_user(plane: Plane, policy: str, *, name: str = "") -> CloudEndpoint:
    """The cloud with the credentials of a new user; all that it may do is in the plane's `policy`, if any."""
    iam, user = plane.cloud.client("iam"), f"{name or policy or 'nobody'}-{next(_NUMBERS)}"
    iam.create_user(UserName=user)
    if policy:
        arn = f"arn:aws:iam::{plane.cloud.account}:policy/eventplane-local-{policy}"
        iam.attach_user_policy(UserName=user, PolicyArn=arn)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    return replace(plane.cloud, access_key_id=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"])


def api_url(plane: Plane, id: str) -> str:
    """The emulator's own form of an HTTP API's URL: names below `localhost` are not resolved everywhere."""
    return f"{plane.cloud.url}/_aws/execute-api/{id}"


def session(cloud: CloudEndpoint) -> boto3.Session:
    """A session with the credentials of `cloud`."""
    return boto3.Session(cloud.access_key_id, cloud.secret_access_key, region_name=cloud.region)


def program_of(plane: Plane, participant: str) -> CloudEndpoint:
    """The cloud as the program of `participant` may enter it."""
    return as_user(plane, f"{participant}-client", name=participant)


def enter_as(program: CloudEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the credentials of `program`."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in program.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def make_claim(emulator: CloudEndpoint, policy: str, folder: Path) -> Thing:
    """The fleet's claim: a certificate with the claim's policy, and no thing."""
    iot = emulator.client("iot")
    made = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_policy(policyName=policy, target=made["certificateArn"])
    files = {
        "claim.crt": made["certificatePem"],
        "claim.key": made["keyPair"]["PrivateKey"],
        "ca.pem": emulator.ca_pem,
    }
    for name, text in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_text(text)
    return Thing(
        name=f"{CLAIM_CLIENT_PREFIX}somebody",
        certificate=folder / "claim.crt",
        key=folder / "claim.key",
        ca=folder / "ca.pem",
        host=emulator.mqtt_host,
        port=emulator.mqtt_port,
    )


def lengths(cloud: CloudEndpoint, url: str) -> tuple[int, int]:
    """How many messages of a queue are visible, and in flight."""
    names: list[Any] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found: Any = cloud.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(found[names[0]]), int(found[names[1]])


Row = dict[str, Any]


class Archive:
    """The archive's rows by folder. Each object is read once, and again when it was replaced."""

    def __init__(self, plane: Plane) -> None:
        self.s3 = plane.cloud.client("s3")
        self.bucket = plane.outputs["ArchiveBucket"]
        self._read: dict[tuple[str, str], list[Row]] = {}

    def body(self, key: str) -> bytes:
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def keys(self, folder: str = "") -> list[str]:
        """The keys below `folder` (`ledger`), or all."""
        return [key for key, _ in self._listed(folder)]

    def objects(self, folder: str) -> Iterator[tuple[str, list[Row]]]:
        """The objects of a folder as of now, by key."""
        for key, tag in self._listed(folder):
            if (key, tag) not in self._read:
                lines = gzip.decompress(self.body(key)).splitlines()
                self._read[key, tag] = [json.loads(line) for line in lines]
            yield key, self._read[key, tag]

    def rows(self, folder: str) -> Iterator[Row]:
        """The rows of a folder as of now."""
        for _, rows in self.objects(folder):
            yield from rows

    def copy_to(self, folder: Path) -> None:
        """Copy the whole archive into a folder, as an auditor would."""
        for key in self.keys():
            file = folder / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.body(key))

    def _listed(self, folder: str) -> list[tuple[str, str]]:
        prefix = f"{folder}/" if folder else ""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [(each["Key"], each["ETag"]) for page in pages for each in page.get("Contents", [])]


Wanted = Callable[[Envelope], bool]


def enter(plane: Plane, sent: Envelope | bytes, *ways: str, at_ms: int = 0) -> None:
    """Put what device `a` sent into the queues `ways`, by default the router's, as the ingest rule does."""
    payload = sent.json.encode() if isinstance(sent, Envelope) else sent
    at_ms = at_ms or time.time_ns() // 1_000_000
    text = frame_text(IngestFrame(payload, "devices/a/outbox", "a", "", at_ms))
    for way in ways or ("IngestUrl",):
        plane.cloud.client("sqs").send_message(QueueUrl=plane.outputs[way], MessageBody=text)


class Inboxes:
    """All events that came into the inboxes of cloud services. They are taken away and kept for all tests."""

    def __init__(self, plane: Plane) -> None:
        self._sqs = plane.cloud.client("sqs")
        self._urls = plane.inboxes
        self._came: dict[str, list[Envelope]] = defaultdict(list)

    def events(self, service: str) -> list[Envelope]:
        """Everything that came for `service`, in the order in which it was read."""
        url = self._urls[service]
        while messages := self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for each in messages:
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
                self._came[service] += [parse_event(text) for text in split(each["Body"])]
        return list(self._came[service])

    def find(self, service: str, wanted: Wanted, within_s: float = SECONDS) -> Envelope | None:
        """The last event that is `wanted`, None if none comes in time."""
        found: list[Envelope] = []

        def look() -> bool:
            found[:] = [each for each in self.events(service) if wanted(each)]
            return bool(found)

        return found[-1] if eventually(look, within_s, every_s=0.1) else None

    def arrives(self, service: str, event: Envelope, within_s: float = SECONDS) -> bool:
        """Whether exactly this event comes."""
        return self.find(service, lambda each: each.json == event.json, within_s) is not None

    def letter(self, wanted: Wanted, within_s: float = SECONDS) -> Envelope:
        """The dead letter that is `wanted`, which has to come to operations."""
        found = self.find("operations", lambda each: each.type == DEAD_LETTER_TYPE and wanted(each), within_s)
        assert found is not None, "no such dead letter came to operations"
        return found
