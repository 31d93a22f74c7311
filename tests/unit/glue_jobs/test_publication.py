"""Reports are filed once for each audit, also of several at once, and each verdict is sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.errors import PySparkException

from eventplane.envelope import Envelope, parse_event, write_event
from glue_jobs.common.objects import BucketObjects, FolderObjects, Objects
from glue_jobs.delivery_audit import publication
from glue_jobs.delivery_audit.chain import Attested, Chain, Past
from glue_jobs.delivery_audit.errors import DamagedReportError, OtherArchiveError, OutboxError
from glue_jobs.delivery_audit.publication import file_report, send_verdict, send_verdicts, trend
from glue_jobs.delivery_audit.verdict import revision, verdict_event
from tests.unit.glue_jobs.test_chain import BEFORE, A, inventory
from tests.unit.glue_jobs.test_verdict import NOON_MS, TOTALS, document, filed

DAY = "2026-03-01"
FIGURES = {**TOTALS, "events_archived": 10}


@pytest.fixture
def output(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path)


def report(chain: Chain) -> dict[str, Any]:
    return document(chain=chain.as_dict(), revision=revision(chain.before, FIGURES), totals=FIGURES)


def followed(output: Objects) -> Chain:
    return Past(output, DAY).follow(BEFORE, Attested())


def audit(output: Objects, write_tables: Callable[[Chain], None] = lambda _: None) -> dict[str, Any]:
    return file_report(output, DAY, followed(output), report, write_tables)


def test_each_audit_of_a_window_has_a_report_of_its_own(output: FolderObjects) -> None:
    for number in range(3):
        assert audit(output)["revision"]["number"] == number
        send_verdicts(output, DAY, None)
    assert [each.name for each in output.beneath("reports")] == [f"reports/{DAY}/{n}.json" for n in range(3)]
    last = parse_event((output.read(f"verdicts/{DAY}.json") or b"").rstrip())
    assert last == verdict_event(output.read(f"reports/{DAY}/2.json") or b"")
    assert len(output.beneath("inventories")) == 1, "the same objects have the same inventory"


def test_the_second_of_two_audits_follows(output: FolderObjects) -> None:
    written: list[str] = []

    def overtaken(chain: Chain) -> None:
        written.append("second")
        if len(written) == 1:
            audit(output, lambda _: written.append("first"))

    second = file_report(output, DAY, followed(output), report, overtaken)
    assert written == ["second", "first", "second"]
    assert second["revision"]["number"] == 1
    assert json.loads(output.read(f"reports/{DAY}/0.json") or b"")["revision"]["number"] == 0
    before = Past(output, DAY)
    assert before.follow(BEFORE, Attested()).changes == ()


@pytest.mark.parametrize("kind", [PySparkException, FileNotFoundError, FileExistsError])
@pytest.mark.parametrize(("failures", "is_filed"), [(2, True), (3, False)])
def test_are_rewritten(output: FolderObjects, failures: int, is_filed: bool, kind: type[Exception]) -> None:
    left = [None] * failures

    def collide(_: Chain) -> None:
        if left:
            left.pop()
            raise kind("Failed to rename")

    if is_filed:
        assert audit(output, collide)["revision"]["number"] == 0
    else:
        with pytest.raises(kind):
            audit(output, collide)
    assert bool(output.beneath("reports")) is is_filed


def test_an_unsent_verdict_is_sent_later(output: FolderObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, event: Envelope) -> None:
        raise OutboxError(url, "no")

    monkeypatch.setattr(publication, "send_verdict", refuse)
    audit(output)
    with pytest.raises(OutboxError):
        send_verdicts(output, DAY, "https://queue")
    sent: list[Envelope] = []
    monkeypatch.setattr(publication, "send_verdict", lambda _, event: sent.append(event))
    audit(output)
    send_verdicts(output, DAY, "https://queue")
    assert [each.data()["revision"]["number"] for each in sent] == [0, 1]
    send_verdicts(output, DAY, "https://queue")
    assert len(sent) == 2


@pytest.mark.lost_answers
def test_an_audit_is_filed_once_and_no_later_one_sends_its_verdict_again(aws: None) -> None:
    s3, sqs = (boto3.client(name, region_name="us-east-1") for name in ("s3", "sqs"))
    s3.create_bucket(Bucket="audits")
    url = sqs.create_queue(QueueName="audits")["QueueUrl"]
    output = BucketObjects(s3, "audits")

    audit(output)
    send_verdicts(output, DAY, None)
    assert len(output.beneath("reports")) == 1
    audit(output)
    send_verdicts(output, DAY, url)
    # SQS sends at least once, as documented.
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert {parse_event(each["Body"]).id for each in received} == {f"{DAY}-1-{NOON_MS}"}
    send_verdicts(output, DAY, url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


DAMAGES = (b"damaged", b"[]", b"\xff", b"[" * 100_000, b'{"chain": {}}')


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_damaged_report_without_a_verdict_is_named(
    output: FolderObjects, tmp_path: Path, damage: bytes, is_sent: bool
) -> None:
    """Each night ended with what the damage led to, and nothing said what to do."""
    audit(output)
    if is_sent:
        send_verdicts(output, DAY, None)
        output.write(f"verdicts/{DAY}.json", damage)
    report = f"reports/{DAY}/0.json"
    output.write(report, damage)
    for attempt in (lambda: audit(output), lambda: send_verdicts(output, DAY, None)):
        with pytest.raises(DamagedReportError, match=f"{report} is damaged.*restore an earlier version"):
            attempt()
    (tmp_path / report).unlink()
    audit(output)
    send_verdicts(output, DAY, None)
    assert Past(output, DAY).last() is not None


def test_the_last_verdict_is_the_last_one(output: FolderObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    audit(output)

    def slowly(_: str, event: Envelope) -> None:
        if event.data()["revision"]["number"] == 0:
            monkeypatch.setattr(publication, "send_verdict", lambda *_: None)
            audit(output)
            send_verdicts(output, DAY, "https://queue")

    monkeypatch.setattr(publication, "send_verdict", slowly)
    send_verdicts(output, DAY, "https://queue")
    last = Past(output, DAY).last()
    assert parse_event((output.read(f"verdicts/{DAY}.json") or b"").rstrip()) == last


def test_an_output_with_the_audit_of_another_archive_is_refused(output: FolderObjects) -> None:
    audit(output)
    send_verdicts(output, DAY, None)
    other = inventory()({A.replace("/a.", "/other."): "etag:1"})
    with pytest.raises(OtherArchiveError, match="another --OUTPUT"):
        Past(output, DAY).follow(other, Attested())


def test_the_trend_has_the_last_verdicts_of_the_days_before(output: FolderObjects) -> None:
    for day in ("2026-02-28", DAY, "2026-03-02", "all"):
        verdict = verdict_event(filed(window={"date": day}, totals=FIGURES))
        output.write(f"verdicts/{day}.json", verdict.json.encode() + b"\n")
    output.write("verdicts/2026-02-27.json", b"damaged")
    for number, data in enumerate([{"x": 1}, {**verdict.data(), "coverage": 3}, [], None]):
        event = write_event({"id": "1", "source": "/s", "type": "t"}, data)
        output.write(f"verdicts/2026-02-2{number}.json", event.json.encode())
    assert [each["date"] for each in trend(output, DAY)] == ["2026-02-28"]
    assert [each["date"] for each in trend(output, "all")] == ["2026-02-28", DAY, "2026-03-02"]
    assert trend(output, DAY)[0] == {
        "date": "2026-02-28",
        "verdict": "open",
        "share": 1.0,
        "events_archived": 10,
        **dict.fromkeys(("lost", "pending", "unrecorded", "findings", "revision"), 0),
    }


@pytest.mark.parametrize("name", ["audit-outbox", "audit-outbox.fifo"])
@pytest.mark.lost_answers
def test_the_verdict_lies_in_the_outbox_as_any_event(aws: None, name: str) -> None:
    # Another region than the environment's: a job on Glue is told none but by the URL.
    sqs = boto3.client("sqs", region_name="eu-central-1")
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url = sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
    verdict = verdict_event(filed())

    send_verdict(url, verdict)

    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert parse_event(message["Body"]) == verdict
    assert message["MessageAttributes"]["ce_type"]["StringValue"] == "org.eventplane.audit.verdict.v1"


def test_a_queue_that_does_not_take_it_is_named_with_the_remedy(aws: None) -> None:
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/nowhere"
    with pytest.raises(OutboxError, match="start it again") as failed:
        send_verdict(url, verdict_event(filed()))
    assert failed.value.queue_url == url
