"""Decide where the original of a dead letter goes back to, by its author and its sender."""

import base64
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventplane.batch import pack
from eventplane.envelope import Envelope, Sender
from eventplane.ingest import IngestFrame, frame_text, parse_frame
from eventplane.limits import MAX_SQS_ATTRIBUTES
from eventplane.sqs_binding import REDRIVEN, to_message
from operations.dead_letters_command import letter_document, letter_text
from operations.letters import Letter, read_letter
from operations.outgoing import Outgoing, Redriving, Skipped, again, original
from operations.queues import PlaneQueues
from tests.fakes.iot import rule_failure
from tests.plane import plane_contract
from tests.unit.operations.support import HOME, ROUTER, event, letter, letter_of_event, queue_message

CONTRACT = plane_contract()
ADDRESSES = ("family-app.outbox", "family-app.inbox", "carers.outbox", "alarm-centre.inbox", "device.inbox")
QUEUES = cast(
    PlaneQueues,
    SimpleNamespace(
        channel_urls={each: f"https://{each}" for each in ADDRESSES}, ingest_url="https://ingest"
    ),
)
DEVICE = Sender("home-1", "device")
OTHER = Sender("home-2")
FAMILY = Sender(service="family-app")
LOST = event("1")
JSON = LOST.json.encode()
FORGED_FRAME = frame_text(
    IngestFrame(event("1", "org.eventplane.alarm.keyword.v1").json.encode(), "t", "home-2", "p", 1)
).encode()


def read(lost: Envelope) -> Letter:
    return read_letter(queue_message(lost), "operations-inbox", "operations.inbox")


def read_body(body: str) -> Letter:
    return read_letter({**queue_message(LOST), "Body": body}, "a-queue", "device.outbox")


def sent(lost: Envelope) -> Outgoing | Skipped:
    return original(read(lost), Redriving("run-1", 0, CONTRACT, QUEUES))


@pytest.mark.parametrize(
    ("lost", "device"),
    [
        (letter_of_event(LOST), "home-1"),
        # The router knows the true sender; a device speaks for itself, whatever it says.
        (letter_of_event(LOST, Sender("home-2", "voice-service")), "home-2"),
        (letter(JSON, "refused_by_cloud", sender=Sender("home-2"), written_by=DEVICE), "home-1"),
    ],
)
def test_a_devices_original_goes_back_to_the_uplinks_queue_as_a_frame(lost: Envelope, device: str) -> None:
    outgoing = sent(lost)
    assert isinstance(outgoing, Outgoing)
    assert outgoing.url == "https://ingest"
    frame = parse_frame(outgoing.entry["MessageBody"])
    (item,) = frame.items()
    assert (frame.client_id, frame.topic, item.original) == (device, f"devices/{device}/outbox", JSON)


STAMPED = LOST.stamped(**HOME.attributes)


@pytest.mark.parametrize(
    ("author", "sender", "channel", "lost"),
    [
        (ROUTER, FAMILY, "family-app.outbox", LOST),
        # A service speaks for what it received and what it sends, and the downlink for the way to devices.
        (FAMILY, None, "family-app.outbox", LOST),
        (FAMILY, None, "family-app.inbox", STAMPED),
        (FAMILY, Sender("home-2"), "family-app.inbox", LOST),
        (Sender(service="downlink"), None, "device.inbox", STAMPED),
    ],
)
def test_a_services_original_goes_back_over_its_own_channel(
    author: Sender, sender: Sender | None, channel: str, lost: Envelope
) -> None:
    outgoing = sent(letter(lost.json.encode(), "refused", channel, sender=sender, written_by=author))
    assert isinstance(outgoing, Outgoing)
    assert (outgoing.url, outgoing.entry["MessageBody"]) == (f"https://{channel}", lost.json)


OUTBOX = "family-app.outbox"
STAYING = [
    (letter(b"no event", "not_json"), "refused again"),
    (letter(b"x" * 70_000, "too_large"), "of 70000 bytes"),
    (letter(JSON, channel="voice-service.outbox"), "on the device"),
    (letter(b"{}", "not_in_tap", "replay", sender=None), "nobody knows who sent"),
    (letter(JSON, written_by=Sender()), "nobody knows who sent the original"),
    # Not the true sender's channel.
    (letter(JSON, sender=FAMILY), "eventplane wrote this letter"),
    (letter(JSON, sender=ROUTER), "eventplane wrote this letter"),
    (letter(JSON, channel=OUTBOX, sender=HOME), "eventplane wrote this letter"),
    (letter(JSON, channel=OUTBOX, sender=Sender(service="carers")), "eventplane wrote this letter"),
    (letter(JSON, channel=OUTBOX, sender=None), "nobody knows who sent"),
    (letter(JSON, channel="gone.outbox", sender=Sender(service="gone")), "eventplane wrote this letter"),
    # A forged letter leads to nobody else's queue.
    *(
        (
            letter(JSON, channel=each, sender=Sender("home-2"), written_by=author),
            f"{author} wrote this letter",
        )
        for author in (DEVICE, HOME, FAMILY)
        for each in ("carers.outbox", "alarm-centre.inbox", "family-app.inbox", "device.inbox")
        if (author, each) != (FAMILY, "family-app.inbox")
    ),
    # What no transport vouched for never becomes a frame.
    *(
        (letter(FORGED_FRAME, "bad_frame", sender=each, written_by=author), "who sent what is no frame")
        for author in (ROUTER, DEVICE, FAMILY)
        for each in (None, OTHER)
    ),
]


@pytest.mark.parametrize(("lost", "why"), STAYING)
def test_a_letter_that_cannot_go_back_stays_with_the_reason(lost: Envelope, why: str) -> None:
    skipped = sent(lost)
    assert isinstance(skipped, Skipped)
    assert why in skipped.reason


def test_a_message_goes_back_with_its_trace_and_a_mark_and_begins_a_new_chain() -> None:
    def entry(attributes: int) -> Mapping[str, Any]:
        hints = {f"a{at}": {"DataType": "String", "StringValue": "x"} for at in range(attributes)}
        system = {"AWSTraceHeader": "Root=1;Sampled=0;Lineage=1:fc3b4ff1:16"}
        message = {"MessageId": "1", "Body": "b", "Attributes": system, "MessageAttributes": hints}
        return again(message, "https://queue", "run").entry

    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1;Sampled=0"}}
    assert entry(MAX_SQS_ATTRIBUTES)["MessageSystemAttributes"] == trace
    for attributes in (0, MAX_SQS_ATTRIBUTES - 1, MAX_SQS_ATTRIBUTES):
        marked = entry(attributes)["MessageAttributes"]
        assert marked[REDRIVEN]["StringValue"] == "run"
        assert len(marked) <= MAX_SQS_ATTRIBUTES


def test_an_original_in_a_fifo_queue_has_its_events_group_and_a_deduplication_id() -> None:
    urls = {"family-app.outbox": "https://ordered.fifo"}
    queues = cast(PlaneQueues, SimpleNamespace(channel_urls=urls, ingest_url=None))
    lost = letter(JSON, "refused", "family-app.outbox", sender=FAMILY)
    redriving = Redriving("run-1", 0, CONTRACT, queues)
    outgoing = original(read(lost), redriving)
    assert isinstance(outgoing, Outgoing)
    assert outgoing.entry["MessageGroupId"] == to_message(LOST).group
    assert outgoing.entry["MessageDeduplicationId"] == redriving.mark(read(lost))


def test_a_letter_has_the_route_and_the_contract_of_its_message() -> None:
    hints = {name: {"DataType": "String", "StringValue": f"a-{name}"} for name in ("route", "contract")}
    found = read_letter({**queue_message(LOST), "MessageAttributes": hints}, "a-queue", "device.outbox")
    assert (found.route, found.contract_version) == ("a-route", "a-contract")


def test_a_letter_is_shown_with_its_reason_remedy_sender_and_original() -> None:
    text = letter_text(read(letter_of_event(LOST, Sender("home-2", "voice-service"))))
    for words in ("payload_invalid", "$.value is a string", "redrive the dead letter", LOST.json):
        assert words in text
    assert "sender      home-2/voice-service" in text
    assert "written by  eventplane" in text
    assert "id 1 of /homes/1/health" in text
    # A device speaks for its own services only.
    forged = read(letter(b"{}", channel="carers.outbox", sender=Sender(service="carers"), written_by=DEVICE))
    assert (str(forged.sender), str(forged.written_by)) == ("home-1/carers", "home-1/device")


@pytest.mark.parametrize(
    ("content", "shown"),
    [("\x1b[2J\u202eabc".encode(), "\\x1b[2J\\u202eabc"), (b"\xff\x00\x1bx", "ff 00 1b 78")],
)
def test_an_original_does_not_reach_the_terminal_as_it_is(content: bytes, shown: str) -> None:
    found = read(letter(content, "not_json"))
    assert shown in letter_text(found)
    assert base64.b64decode(letter_document(found)["original_base64"]) == content


def test_a_payload_that_a_rule_could_not_deliver_is_shown_as_that() -> None:
    line = b'{"clientId": "home-1", "eventType": "connected"}'
    batch = read_body(rule_failure(pack([LOST]), "queue-1", "queue-2"))
    assert (batch.kind, batch.reason, str(batch.sender)) == ("rule_failure", "rule_failed", "home-1/")
    assert batch.detail == "the rule eventplane_dev_ingest: no; no"
    assert [each.id for each in batch.events] == ["1"]
    connection = read_body(rule_failure(line, ruleName="connections", failures=7, clientId=None))
    assert (connection.detail, connection.original) == ("the rule connections: it does not say why", line)


BODIES: list[Any] = [
    *(" ", "{", "null", '{"data": "%"}', '{"type": "org.eventplane.deadletter.v1"}', "\ud7ff" * 9),
    json.dumps({"base64OriginalPayload": 7}),
]


@pytest.mark.parametrize("body", BODIES)
def test_any_other_message_is_unreadable(body: str) -> None:
    found = read_body(body)
    assert (found.kind, found.reason) == ("unreadable", "receives_exhausted")
    assert found.is_called(found.id)
    assert not found.is_called("another")
