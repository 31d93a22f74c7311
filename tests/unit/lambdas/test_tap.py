"""The tap, and messages that 0.3.0 left in queues."""

import base64
import json
from collections.abc import Callable
from os import urandom
from pathlib import Path
from typing import Any

import pytest

from edge.uplink import PROBE
from eventplane.batch import pack
from eventplane.envelope import parse_event
from eventplane.ingest import parse_frame
from eventplane.sqs_binding import split
from eventplane.traffic import Quota, Traffic, read_traffic
from lambdas.archive import tap as module
from lambdas.archive.tap import RESERVE_MS, TELLING_MS, TapWriter, TrafficReport
from lambdas.common.archive import Archiver
from lambdas.common.queue import Invocation
from lambdas.common.sqs import SqsSender
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import BUCKET, NOW_MS, Cloud, event, frame, invocation, message

GOOD = message("m1", frame(pack([event("1"), event("2")])))
BAD = message("m2", "no frame")


@pytest.fixture
def writer(cloud: Cloud) -> TapWriter:
    return TapWriter(archive=Archiver(cloud.s3, BUCKET, urandom), clock=cloud.clock)


def test_every_item_of_a_frame_is_one_record(cloud: Cloud, writer: TapWriter) -> None:
    assert writer.process([GOOD], invocation()) == frozenset()
    first, second = cloud.lines("tap/date=2026-01-01/hour=00/")
    assert first["event"] == event("1").json
    assert (first["message_id"], first["index"], second["index"]) == ("m1", 0, 1)
    assert (first["accepted_at_ms"], first["archived_at_ms"]) == (NOW_MS - 1_000, NOW_MS)


@pytest.mark.parametrize("payload", [PROBE, pack([])])
def test_a_keepalive_without_events_leaves_nothing(cloud: Cloud, writer: TapWriter, payload: bytes) -> None:
    empty = message("m2", frame(payload))
    assert writer.process([empty], invocation()) == frozenset()
    assert cloud.keys() == []
    writer.process([empty, GOOD], invocation())
    assert [line["message_id"] for line in cloud.lines("tap/")] == ["m1", "m1"]


def test_a_malformed_item_is_kept_with_its_bytes(cloud: Cloud, writer: TapWriter) -> None:
    writer.process([message("m1", frame(b"\xff\xfe"))], invocation())
    (line,) = cloud.lines("tap/")
    assert (line["event"], line["refusal"]) == (None, "not_utf8")
    assert base64.b64decode(line["original_base64"]) == b"\xff\xfe"


def test_a_malformed_frame_goes_to_the_quarantine(cloud: Cloud, writer: TapWriter) -> None:
    assert writer.process([GOOD, BAD], invocation()) == frozenset()
    assert len(cloud.lines("tap/")) == 2
    (line,) = cloud.lines("quarantine/")
    assert (line["message_id"], line["reason"], line["body"]) == ("m2", "bad_frame", "no frame")


def test_a_repeated_batch_replaces_its_object_in_any_order(cloud: Cloud, writer: TapWriter) -> None:
    batch = [GOOD, message("m3", frame(event("3")))]
    for each in (batch, batch[::-1]):
        writer.process(each, invocation())
    assert (len(cloud.keys("tap/")), len(cloud.lines("tap/"))) == (1, 3)


@pytest.mark.parametrize("broken", ["tap_records", "parse_frame"])
def test_a_defect_affects_no_other(
    cloud: Cloud, writer: TapWriter, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    real = getattr(module, broken)

    def met(*arguments: Any) -> Any:
        return 1 / 0 if any(each in ("m3", "deep") for each in arguments[:2]) else real(*arguments)

    monkeypatch.setattr(module, broken, met)
    body = "deep" if broken == "parse_frame" else frame(b"{}")
    assert writer.process([message("m3", body), GOOD, BAD], invocation()) == {"m3"}
    assert (len(cloud.lines("tap/")), len(cloud.lines("quarantine/"))) == (2, 1)


def test_a_message_without_time_comes_again(cloud: Cloud, writer: TapWriter) -> None:
    other = message("m3", frame(pack([event(str(number)) for number in range(9)])))
    left = iter([RESERVE_MS])
    assert writer.process([GOOD, other, BAD], Invocation("i", lambda: next(left, RESERVE_MS - 1))) == {"m3"}
    assert {line["message_id"] for line in cloud.lines("tap/")} == {"m1"}
    assert len(cloud.lines("quarantine/")) == 1
    # It cannot replace the complete object of another delivery of the batch.
    (part,) = cloud.keys("tap/")
    writer.process([GOOD], invocation())
    assert cloud.keys("tap/") == [part]
    writer.process([GOOD, other], invocation())
    assert len(cloud.keys("tap/")) == 2


def _read(body: str) -> tuple[str, Traffic, str]:
    found = read_traffic(json.loads(body))
    assert found is not None
    return found


class Flood:
    """A flooding device, and an archive writer that reports it to the queue `monitor`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.monitor = cloud.queue("monitor")
        self.messages = [
            message(f"flood-{at}", frame(pack([event(f"{at}-1"), event(f"{at}-2")]))) for at in range(20)
        ]

    def write(
        self, *, s3: Any = None, sqs: Any = None, remaining_ms: Callable[[], int] = lambda: 60_000
    ) -> int:
        """Return the number of messages that are redelivered."""
        quota = Quota(window_s=60, frames=600, events=60_000, bytes=6_000_000)
        writer = TapWriter(
            archive=Archiver(s3 or self.cloud.s3, BUCKET, urandom),
            clock=self.cloud.clock,
            traffic=TrafficReport(SqsSender(sqs or self.cloud.sqs), self.monitor, quota, urandom),
        )
        return len(writer.process([*self.messages, BAD], Invocation("i", remaining_ms)))

    def told(self) -> list[tuple[str, Traffic]]:
        # The monitor counts a report once.
        reports = dict.fromkeys(self.cloud.sqs.take(self.monitor))
        return [(device, traffic) for device, traffic, _ in map(_read, reports)]


@pytest.fixture
def flood(cloud: Cloud) -> Flood:
    return Flood(cloud)


@pytest.mark.lost_answers
def test_a_flooding_device_is_reported_to_the_monitor(flood: Flood) -> None:
    assert flood.write() == 0
    size = sum(len(parse_frame(each.body).payload) for each in flood.messages)
    assert flood.told() == [("home-1", Traffic((NOW_MS - 1_000) // 60_000, 20, 40, size))]
    # What could not be archived is counted once it is.
    assert flood.write(s3=FailingClient(flood.cloud.s3, "put_object")) == 21
    assert flood.told() == []
    del flood.messages[5:]
    assert (flood.write(), flood.told()) == (0, [])


def test_an_unreachable_monitor_delays_no_frame(cloud: Cloud, flood: Flood) -> None:
    assert flood.write(sqs=FailingClient(cloud.sqs, "send_message_batch")) == 0
    left = iter([60_000] * 20)
    assert flood.write(remaining_ms=lambda: next(left, TELLING_MS - 1)) == 0
    assert flood.told() == []


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
