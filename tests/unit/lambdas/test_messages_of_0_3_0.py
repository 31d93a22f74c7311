"""Messages that 0.3.0 sent, recorded from its forwarder and functions in a run of chaos, are read as it did.

They are in the queues when a new version is deployed in the middle of traffic, and devices send such frames
for years: `ingest` is what the rule puts into the router's queue, `decisions` are those of 0.3.0 (device,
source, id, destination, outcome, reason), `inboxes` and `ledger` what its router sent.
"""

import json
from os import urandom
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import parse_event
from eventplane.sqs_binding import split
from lambdas.archive.tap import TapWriter
from lambdas.common.archive import Archiver
from tests.unit.lambdas.support import BUCKET, Cloud, invocation, message

SENT: dict[str, Any] = json.loads(Path(__file__).with_name("messages-0.3.0.json").read_text())
HOMES = {"home-1", "home-2"}
FRAMES = [message(f"m{number}", body) for number, body in enumerate(SENT["ingest"])]


def test_the_router_decides_about_each_event_as_it_did(cloud: Cloud) -> None:
    assert cloud.route(*FRAMES) == frozenset()
    found = cloud.ledger_rows("client_id", "source", "id", "destination", "outcome", "reason")
    assert sorted(map(str, found)) == sorted(str(tuple(each)) for each in SENT["decisions"])


def test_the_archive_takes_what_was_on_its_way_to_it(cloud: Cloud) -> None:
    for body in SENT["ledger"]:
        cloud.sqs.send_message(QueueUrl=cloud.ledger, MessageBody=body)
    assert {each["client_id"] for each in cloud.decisions()} & HOMES
    writer = TapWriter(archive=Archiver(cloud.s3, BUCKET, urandom), clock=cloud.clock)
    assert writer.process(FRAMES, invocation()) == frozenset()
    tapped = {(each["client_id"], json.loads(each["event"])["id"]) for each in cloud.lines("tap/")}
    assert tapped >= {(device, id) for device, _, id, *_ in SENT["decisions"]}


@pytest.mark.parametrize("inbox", SENT["inboxes"])
def test_a_reader_finds_the_events_in_a_message_of_its_inbox(inbox: str) -> None:
    for body in SENT["inboxes"][inbox]:
        events = [parse_event(text) for text in split(body)]
        assert events
        assert {each.attributes["senderdevice"] for each in events} <= HOMES
