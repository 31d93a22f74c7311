"""What the functions share: adapters of AWS, redelivery and metrics."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from os import urandom
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.metrics.provider.cloudwatch_emf import cloudwatch
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.retries.standard import ExponentialBackoff
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Contract
from eventplane.device_reports import short_digest
from eventplane.envelope import parse_event, write_event
from eventplane.guarantee import GUARANTEE_HINT
from eventplane.ingest import IngestFrame, frame_text, parse_frame
from eventplane.ledger import tap_records
from eventplane.sqs_binding import CLOCK_TOLERANCE_MS, QueueClock, to_message
from eventplane.values import timestamp_ms, timestamp_of_ms
from eventplane.written import Entry, read_entry
from eventplane_aws.rules import SQS_BATCH, SQS_BATCH_BYTES
from lambdas.common.archive import Archiver
from lambdas.common.aws import PATIENT, QUICK, WORST_CALL_MS, Timeouts, client
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import QueueMessage, read_messages
from lambdas.common.queue_function import Redelivery, handle_each
from lambdas.common.sender import TAKEN, Acceptance, Answer
from lambdas.common.sqs import PlainMessage, SqsSender, batches
from tests.fakes.faults import FailingClient, HookedClient
from tests.unit.lambdas.support import (
    ALARM,
    BUCKET,
    NOW_MS,
    Cloud,
    event,
    failures,
    figures,
    frame,
    message,
    sqs_event,
)


@pytest.mark.parametrize("patience", [PATIENT, QUICK])
def test_the_worst_call_includes_pauses(monkeypatch: pytest.MonkeyPatch, patience: Timeouts) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    spent_s: list[float] = []

    def time_out(*_: object) -> None:
        spent_s.append(patience.connect_s + patience.read_s)
        raise ReadTimeoutError(endpoint_url="")

    monkeypatch.setattr(URLLib3Session, "send", time_out)
    monkeypatch.setattr("botocore.endpoint.time.sleep", spent_s.append)
    monkeypatch.setattr(ExponentialBackoff.__init__, "__defaults__", (20, lambda: 1.0, None, None))
    with pytest.raises(ReadTimeoutError):
        client("sqs", patience).list_queues()
    assert len(spent_s) == 3
    assert round(1_000 * sum(spent_s)) <= patience.worst_call_ms


def test_a_batch_keeps_to_sqs_limits() -> None:
    sizes = [len(batch) for batch in batches(to_message(event(str(each))) for each in range(23))]
    assert sizes == [SQS_BATCH.most, SQS_BATCH.most, 3]
    large = write_event({"id": "1", "source": "/a", "type": "t"}, "ä" * 45_000)
    messages = [to_message(large, {"hint": "x" * 60_000}) for _ in range(10)]
    cut = list(batches(messages))
    assert [len(batch) for batch in cut] == [6, 4]
    assert all(sum(each.bytes for each in batch) <= SQS_BATCH_BYTES.most for batch in cut)


def test_an_entry_missing_from_the_answer_is_tried_again() -> None:
    class Forgetful:
        def send_message_batch(self, **_: Any) -> Any:
            return {"Successful": [{"Id": "1"}]}

    batch = [to_message(event("1")), to_message(event("2"))]
    assert SqsSender(Forgetful()).send("https://queue", batch) == [
        Answer(Acceptance.AGAIN, "SQS said nothing of it"),
        TAKEN,
    ]


def test_a_batch_that_is_too_long_is_halved(cloud: Cloud) -> None:
    def is_too_long(request: dict[str, Any]) -> bool:
        """As before August 2025: 256 KiB a batch."""
        return sum(len(each["MessageBody"]) for each in request["Entries"]) > 262_144

    code = "AWS.SimpleQueueService.BatchRequestTooLong"
    small = FailingClient(cloud.sqs, "send_message_batch", refused=is_too_long, code=code)
    batch = [PlainMessage("x" * (300_000 if at == 3 else 60_000)) for at in range(10)]
    found = [each.acceptance for each in SqsSender(small).send(cloud.source, batch)]
    assert found == [Acceptance.NEVER if at == 3 else Acceptance.TAKEN for at in range(10)]


def test_a_standard_queue_has_groups(cloud: Cloud) -> None:
    flood = [to_message(event(str(at), senderdevice="home-1", senderservice="x")) for at in range(8)]
    quiet = [to_message(event("8", senderdevice="home-2")), PlainMessage("9")]
    assert SqsSender(cloud.sqs).send(cloud.source, [*flood, *quiet]) == [TAKEN] * 10
    groups = [each.group for each in cloud.sqs.queue(cloud.source).messages]
    assert groups == [flood[0].tenant] * 8 + [quiet[0].tenant, None]
    received = cloud.sqs.receive_message(
        QueueUrl=cloud.source, MaxNumberOfMessages=10, AttributeNames=["All"]
    )
    assert len(received["Messages"]) == 10
    assert {*groups[:8]} == {each["Attributes"]["MessageGroupId"] for each in received["Messages"][:8]}


def test_a_fifo_queue_gets_groups_and_deduplication(cloud: Cloud) -> None:
    url = cloud.sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    batch = [to_message(event("1")), to_message(event("2")), to_message(event("2"))]
    batch.append(to_message(event("3", partitionkey="other")))
    assert SqsSender(cloud.sqs).send(url, batch) == [TAKEN] * 4

    received = cloud.sqs.queue(url).messages
    groups = {json.loads(each.body)["id"]: each.group for each in received}
    assert len(received) == 3
    assert groups["1"] == groups["2"] != groups["3"]


def test_a_contract_is_filed_once_by_all_functions(cloud: Cloud) -> None:
    for _ in range(2):
        s3 = FailingClient(cloud.s3, targets=())
        archive = Archiver(s3, BUCKET, urandom)
        for _ in range(2):
            archive.file_contract(cloud.contract.version, cloud.contract.canonical)
        assert s3.asked == [("put_object", BUCKET)]
    assert cloud.read(f"contracts/{cloud.contract.version}.json") == cloud.contract.canonical


# The second reports a concurrent request, which may have failed too (Amazon S3 guide).
@pytest.mark.parametrize("code", ["AccessDenied", "ConditionalRequestConflict"])
def test_any_other_refusal_to_file_is_raised(cloud: Cloud, contract: Contract, code: str) -> None:
    archive = Archiver(FailingClient(cloud.s3, "put_object", code=code), BUCKET, urandom)
    with pytest.raises(ClientError):
        archive.file_contract(contract.version, contract.canonical)


LINE = '{"decided_at_ms":7,"entered_at_ms":5,"id":"1"}'
HOUR_MS = 3_600_000


def entries(cloud: Cloud) -> list[Entry]:
    return [entry for key in cloud.keys("written/") if (entry := read_entry(key)) and not cloud.read(key)]


def test_a_writer_lists_each_object_that_the_audit_judges(cloud: Cloud) -> None:
    def meanwhile() -> None:
        if not beside and len(cloud.keys("ledger/")) == 3:
            beside.append(None)  # while the third object is being listed, another thread lists one
            beside[0] = one.put_lines("ledger", "3", NOW_MS + 3 * HOUR_MS, [LINE])

    beside: list[str | None] = []
    interleaved = HookedClient(cloud.s3, "put_object", before=meanwhile)
    one, other = Archiver(interleaved, BUCKET, urandom), Archiver(cloud.s3, BUCKET, urandom)
    keys = [one.put_lines("ledger", f"{at}", NOW_MS + at * HOUR_MS, [LINE] * (at + 1)) for at in range(3)]
    keys += beside
    keys.append(other.put_lines("tap", "a", NOW_MS, [LINE]))
    for folder in ("quarantine", "fleet"):
        one.put_lines(folder, "b", NOW_MS, [LINE])
    found = entries(cloud)
    assert [each.key for each in found] == keys
    assert [(each.number, each.rows_before, each.rows) for each in found] == [
        (1, 0, 1),
        (2, 1, 2),
        (3, 3, 3),
        (1, 0, 1),
        (1, 0, 1),
    ]
    assert {(each.first_ms, each.last_ms) for each in found} == {(5, 7)}
    assert [each.digest for each in found] == [
        hashlib.sha256(cloud.read(key or "")).hexdigest() for key in keys
    ]
    assert len({each.writer for each in found}) == 3


def test_what_cannot_be_listed_is_safe_and_takes_no_number(cloud: Cloud) -> None:
    no_lists = FailingClient(
        cloud.s3, "put_object", refused=lambda request: failing and "written" in request["Key"]
    )
    archive = Archiver(no_lists, BUCKET, urandom)
    for name in "abc":
        failing = name == "b"
        assert archive.put_messages("tap", {name}, NOW_MS, [LINE]) == {name}
    assert archive.put_lines("tap", "d", NOW_MS, [LINE], lambda: False) is not None
    assert len(cloud.keys("tap/")) == 4
    assert sorted((each.number, each.rows_before) for each in entries(cloud)) == [(1, 0), (2, 1)]


def test_a_listed_object_is_written_once(cloud: Cloud) -> None:
    for line in (LINE, LINE.replace("7", "8")):
        assert Archiver(cloud.s3, BUCKET, urandom).put_messages("tap", {"a"}, NOW_MS, [LINE, line]) == {"a"}
    (entry,) = entries(cloud)
    assert (entry.rows, entry.digest) == (2, hashlib.sha256(cloud.read(entry.key)).hexdigest())
    stored = cloud.s3.head_object(Bucket=BUCKET, Key=entry.key)
    assert entry.mark == f"{stored['ETag'].strip(chr(34))}-{stored['ContentLength']}"
    # What no list names is replaced, as the list of a fleet's devices is.
    for line in ("a", "b"):
        key = Archiver(cloud.s3, BUCKET, urandom).put_lines("fleet", "devices", NOW_MS, [line])
    assert gzip.decompress(cloud.read(key or "")) == b"b\n"


@pytest.fixture
def batch(cloud: Cloud) -> list[QueueMessage]:
    """25 messages in flight: m1 at its first attempt, m2 at its second, and so on."""
    for at in range(25):
        cloud.sqs.send_message(QueueUrl=cloud.source, MessageBody=str(at))
    handles = [
        each["ReceiptHandle"]
        for _ in range(3)
        for each in cloud.sqs.receive_message(QueueUrl=cloud.source, MaxNumberOfMessages=10)["Messages"]
    ]
    records = sqs_event(*(message(f"m{at}", "", at) for at in range(1, 26)))
    for record, handle in zip(records["Records"], handles, strict=True):
        record["receiptHandle"] = handle
    return read_messages(records)


def waits(cloud: Cloud) -> list[float]:
    """For how long each message is hidden, seconds."""
    return [(each.visible_ms - cloud.clock()) / 1_000 for each in cloud.sqs.queue(cloud.source).messages]


def test_only_failed_messages_wait_by_their_age(cloud: Cloud, batch: list[QueueMessage]) -> None:
    redelivery = Redelivery(cloud.sqs, cloud.source, lambda: 1.0, lambda: batch[0].sent_at_ms + 50_000)
    assert redelivery.answer(batch, {"m1", "m3"}, lambda: 30_000) == failures("m1", "m3")
    assert waits(cloud) == [1, 30, 50, *[30] * 22]
    # A reader may set the waits itself, up to the longest.
    redelivery.answer(batch, {"m1": 7, "m2": 900}, lambda: 30_000)
    assert waits(cloud)[:3] == [7, 900, 50]


def test_waits_are_set_ten_at_a_time(cloud: Cloud, batch: list[QueueMessage]) -> None:
    left = iter([WORST_CALL_MS, WORST_CALL_MS, WORST_CALL_MS - 1])
    redelivery = Redelivery(cloud.sqs, cloud.source, lambda: 1.0, cloud.clock)
    ids = [each.id for each in batch]
    assert redelivery.answer(batch, set(ids), lambda: next(left)) == failures(*ids)
    assert waits(cloud)[20:] == [30] * 5 != waits(cloud)[15:20]


def test_a_failed_wait_does_not_acknowledge_the_message(cloud: Cloud, batch: list[QueueMessage]) -> None:
    unwilling = FailingClient(cloud.sqs, "change_message_visibility_batch", code="AccessDenied")
    unknown = [QueueMessage("m1", "", 0, 1, receipt="gone")]
    for sqs, messages in ((unwilling, batch), (cloud.sqs, unknown)):
        assert Redelivery(sqs, cloud.source, lambda: 1.0, cloud.clock).answer(
            messages, {"m1"}, lambda: 30_000
        ) == failures("m1")
    unwilling.asked.clear()
    idle = Redelivery(unwilling, cloud.source, lambda: 1.0, cloud.clock)
    assert idle.answer(batch, set(), lambda: 0) == failures()
    assert unwilling.asked == []


def test_only_fifo_messages_have_their_group() -> None:
    batch = sqs_event(message("m1", "x"))
    assert [(each.receipt, each.group) for each in read_messages(batch)] == [("handle-m1", None)]
    batch["Records"][0]["attributes"]["MessageGroupId"] = "g"
    assert read_messages(batch)[0].group is None
    batch["Records"][0]["eventSourceARN"] += ".fifo"
    assert read_messages(batch)[0].group == "g"


def test_a_message_says_whether_its_event_is_at_best_effort() -> None:
    batch = sqs_event(message("m1", "x"), message("m2", "x"))
    batch["Records"][0]["messageAttributes"] = {GUARANTEE_HINT: {"stringValue": "best_effort"}}
    assert [each.is_best_effort for each in read_messages(batch)] == [True, False]


@pytest.mark.source("P4", "P15")
def test_a_failed_message_affects_no_other() -> None:
    handled: list[str] = []

    def handle(each: QueueMessage) -> bool:
        handled.append(each.id)
        if each.id == "defect":
            raise KeyError(each.id)
        return each.id != "not done"

    messages = [message(id, "") for id in ("done", "defect", "not done", "last", "too late")]
    failed = handle_each(messages, handle, lambda: len(handled) < 4)
    assert failed == {"defect", "not done", "too late"}
    assert handled == ["done", "defect", "not done", "last"]
    assert handle_each([message("done", "")], handle) == frozenset()


ROOT = Path(__file__).parents[3]

PROGRAM = """
from lambdas.common.metrics import Count, Gauge, count, mark, measure, metrics
count(Count.DELIVERED, 3)
count(Count.DEAD_LETTERED, 0)
count(Count.RETRIED, 2)
measure(Gauge.DEAD_LETTERS, 0)
mark("DeviceFlooding")
metrics.flush_metrics()
"""


def written() -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The dimensions and values of each line that a function writes; its settings are read at import."""
    own = {
        "EVENTPLANE_METRICS_SERVICE": "eventplane-dev-router",
        "POWERTOOLS_SERVICE_NAME": "eventplane-dev-router-audit",
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    found = []
    for line in lines:
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        (names,) = directive["Dimensions"]
        values = {each["Name"]: line[each["Name"]] for each in directive["Metrics"]}
        found.append(({name: line[name] for name in names}, values))
    return found


def test_functions_of_a_service_share_a_metric() -> None:
    router = {"service": "eventplane-dev-router"}
    assert written() == [
        ({"service": "eventplane-dev-router-audit"}, {"Retried": [2]}),
        (router, {"DeviceFlooding": [1]}),
        # No DeadLettered: a 0 would cost money. The gauge's 0 means that the check ran.
        (router, {"Delivered": [3], "Retried": [2], "DeadLetters": [0]}),
    ]


def test_flush_loses_no_count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=count, args=(Count.CONTRACT_UNCHECKED,))

    def write(text: str) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)
        sys.stdout.write(f"{text}\n")

    monkeypatch.setattr(cloudwatch, "print", write, raising=False)
    count(Count.MESSAGES)
    metrics.flush_metrics()
    other.join()
    metrics.flush_metrics()
    assert [set(figures(line)) for line in capsys.readouterr().out.splitlines()] == [
        {"Messages"},
        {"ContractUnchecked"},
    ]


MINUTE_MS = 60_000


def received(at_ms: int | None, attempt: int = 1) -> QueueMessage:
    return replace(message("m1", "", attempt), received_at_ms=at_ms)


@pytest.mark.parametrize("ahead_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_a_wrong_clock_is_corrected_by_the_queue_s_time(ahead_ms: int) -> None:
    now_ms = NOW_MS + ahead_ms
    clock = QueueClock(lambda: now_ms)
    clock.observe([received(NOW_MS - 30_000), received(NOW_MS), received(None)])
    assert (clock(), clock.skew_ms) == (NOW_MS, ahead_ms)
    # An earlier receive says nothing about the present; the known skew is used meanwhile.
    clock.observe([received(NOW_MS - MINUTE_MS, attempt=2)])
    assert clock() == NOW_MS
    now_ms = NOW_MS
    clock.observe([received(NOW_MS)])
    assert (clock(), clock.skew_ms) == (NOW_MS, 0)


@given(st.integers(-(10**8), 10**8), st.lists(st.integers(0, 10**6), min_size=1, max_size=10))
def test_the_corrected_time_is_right_within_the_tolerance(ahead_ms: int, waited_ms: list[int]) -> None:
    clock = QueueClock(lambda: NOW_MS + ahead_ms)
    clock.observe([received(NOW_MS - each) for each in waited_ms])
    assert NOW_MS - min(waited_ms) - CLOCK_TOLERANCE_MS <= clock() <= NOW_MS + CLOCK_TOLERANCE_MS


def test_the_start_of_a_function_is_not_an_error_of_the_clock() -> None:
    clock = QueueClock(lambda: NOW_MS)
    for waited_ms in (CLOCK_TOLERANCE_MS, -CLOCK_TOLERANCE_MS):
        clock.observe([received(NOW_MS - waited_ms)])
        assert (clock(), clock.skew_ms) == (NOW_MS, 0)


@pytest.mark.parametrize(("minutes", "outcome"), [(5, "delivered"), (-1, "expired")])
def test_queue_time_expires(
    cloud: Cloud, minutes: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.service.count", counted.append)
    alarm = event("1", ALARM, expirytime=timestamp_of_ms(NOW_MS + minutes * MINUTE_MS))
    cloud.clock.now_ms += 10 * MINUTE_MS
    assert cloud.route(replace(message("m1", frame(alarm)), received_at_ms=NOW_MS)) == frozenset()
    rows = cloud.ledger_rows("outcome", "decided_at_ms", "received_at_ms")
    assert (rows, counted) == ([(outcome, NOW_MS, NOW_MS)] * 2, ["ClockSkew"])


CLOCKS = [
    {"time": "1970-01-01T00:00:12Z"},
    {"time": timestamp_of_ms(NOW_MS - 14 * MINUTE_MS), "deliverby": "9999-12-31T23:59:59Z"},
    {"time": "2056-01-01T00:00:00Z", "deliverby": "1970-01-01T00:00:00Z", "uptimelimit": "1 b"},
    {"time": "1970-01-01T00:00:12Z", "senttime": "1970-01-01T00:05:12Z"},  # five minutes on its device
]


@pytest.mark.parametrize("said", CLOCKS)
@pytest.mark.parametrize(
    ("waited_ms", "ahead_ms", "attempt", "outcome"),
    [
        (0, 0, 1, "delivered"),
        (8 * MINUTE_MS, 0, 1, "delivered"),
        (8 * MINUTE_MS, 10 * MINUTE_MS, 1, "delivered"),
        (10 * MINUTE_MS - 5_000, 9_000, 1, "delivered"),  # no clock is ahead but for this machine's
        (8 * MINUTE_MS, 10 * MINUTE_MS, 2, "delivered"),  # in a process that has seen no first receive
        (10 * MINUTE_MS, 0, 1, "expired"),
        (10 * MINUTE_MS, -MINUTE_MS, 1, "expired"),
    ],
)
def test_lifetimes_count_from_acceptance(
    cloud: Cloud, said: dict[str, str], waited_ms: int, ahead_ms: int, attempt: int, outcome: str
) -> None:
    ends = timestamp_of_ms(timestamp_ms(said.get("senttime", said["time"])) + 10 * MINUTE_MS)
    alarm = event("1", ALARM, **said, expirytime=ends)
    cloud.clock.now_ms += ahead_ms
    accepted_ms = NOW_MS - waited_ms
    body = frame_text(IngestFrame(alarm.json.encode(), "t", "home-1", "certificate", accepted_ms))
    assert cloud.route(replace(message("m1", body, attempt), received_at_ms=NOW_MS)) == frozenset()
    inbox = parse_event(cloud.bodies("alarm-centre.inbox")[0]) if outcome == "delivered" else None
    assert inbox is None or inbox.attributes["deliverby"] == timestamp_of_ms(accepted_ms + 10 * MINUTE_MS)
    assert inbox is None or not {"senttime", "uptimelimit"} & inbox.attributes.keys()
    own = alarm.without(["senttime"]).json
    (tapped,) = tap_records(parse_frame(body), "m1", NOW_MS)
    assert (tapped.event, tapped.expires_at_ms) == (own, accepted_ms + 10 * MINUTE_MS)
    assert {*cloud.ledger_rows("outcome", "digest")} == {(outcome, short_digest(own.encode()))}
