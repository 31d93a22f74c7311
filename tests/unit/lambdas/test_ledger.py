"""The ledger's way to the archive: by its queue, or else by S3, and each contract before its lines."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from eventplane.contract import Contract
from eventplane.ledger import (
    MAX_LEDGER_CHARACTERS,
    MAX_LEDGER_MESSAGE_BYTES,
    LedgerMessage,
    LedgerMessageError,
    LedgerRecord,
    ledger_texts,
    parse_ledger_text,
)
from eventplane.reasons import Outcome
from lambdas.archive.ledger import RESERVE_MS, LedgerWriter
from lambdas.common.archive import Archive
from lambdas.common.ledger import LedgerError
from lambdas.common.queue import Invocation, QueueMessage
from tests.unit.lambdas.support import (
    BUCKET,
    NOW_MS,
    Cloud,
    Run,
    Unwilling,
    event,
    frame,
    invocation,
    ledger_of,
    message,
)

pytestmark = pytest.mark.source("P4")

NOISE = random.Random(1)
NO_TEXT = base64.b64encode(gzip.compress(b"\xff", mtime=0)).decode()


def noisy(number: int) -> str:
    """A line that hardly gets smaller by compression."""
    return json.dumps({"id": f"{number}-{NOISE.randbytes(40_000).hex()}"})


def held(*lines: str, contracts: dict[str, bytes] | None = None) -> QueueMessage:
    """A message of the ledger's queue."""
    ((text, _),) = ledger_texts(lines, contracts or {})
    return message(f"m-{len(text)}", text)


def records(number: int) -> list[LedgerRecord]:
    return [
        LedgerRecord(
            decided_at_ms=NOW_MS,
            entered_at_ms=NOW_MS,
            entered_by="device.outbox",
            contract_version="v1",
            source="/homes/1",
            id=str(each),
            type="t",
            priority="urgent",
            client_id="home-1",
            route="r",
            destination="d",
            outcome=Outcome.DELIVERED,
            reason=None,
            attempt=1,
            message_id="m1",
        )
        for each in range(number)
    ]


def test_lines_and_contracts_come_out_as_they_went_in(contract: Contract) -> None:
    lines = ['{"id":"a\\nb"}', '{"id":"\u2028 ü"}']
    ((text, _),) = ledger_texts(lines, {contract.version: contract.canonical})
    read = parse_ledger_text(text)
    assert (list(read.lines), dict(read.contracts)) == (lines, {contract.version: contract.canonical})


def test_what_does_not_fit_one_message_takes_several_with_the_contracts_first(contract: Contract) -> None:
    lines = [noisy(number) for number in range(60)]
    parts = ledger_texts(lines, {contract.version: contract.canonical})
    assert len(parts) > 2
    assert max(len(text) for text, _ in parts) <= MAX_LEDGER_MESSAGE_BYTES
    read = [parse_ledger_text(text) for text, _ in parts]
    assert [line for each in read for line in each.lines] == lines
    assert [bool(each.contracts) for each in read] == [True] + [False] * (len(parts) - 1)


def test_names_that_compress_well_make_no_message_that_is_too_large_to_read() -> None:
    lines = ["a" * (MAX_LEDGER_CHARACTERS // 3)] * 10
    parts = [parse_ledger_text(text) for text, _ in ledger_texts(lines, {})]
    assert max(sum(map(len, each.lines)) for each in parts) <= MAX_LEDGER_CHARACTERS
    assert [line for each in parts for line in each.lines] == lines


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format":2,"lines":"","contracts":{}}',
        '{"format":1,"lines":"AAAA","contracts":{}}',
        '{"format":1,"contracts":{}}',
        json.dumps({"format": 1, "lines": NO_TEXT, "contracts": {}}),
    ],
)
def test_a_message_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(LedgerMessageError):
        parse_ledger_text(text)


def test_the_writer_makes_one_object_of_a_batch_and_files_each_contract_once(
    cloud: Cloud, contract: Contract
) -> None:
    puts: list[str] = []

    class Counting:
        def put_object(self, *, Key: str, **request: Any) -> Any:  # noqa: N803
            puts.append(Key)
            return cloud.s3.put_object(Key=Key, **request)

    writer = LedgerWriter(archive=Archive(Counting(), BUCKET), clock=lambda: NOW_MS)
    own = {contract.version: contract.canonical}
    batch = [held('{"id":"1"}', contracts=own), held('{"id":"22"}', '{"id":"3"}', contracts=own)]
    assert writer.process(batch, invocation()) == frozenset()
    assert [line["id"] for line in cloud.lines("ledger/date=2026-01-01/hour=00/")] == ["1", "22", "3"]
    filed = cloud.s3.get_object(Bucket=BUCKET, Key=f"contracts/{contract.version}.json")["Body"].read()
    assert filed == contract.canonical
    # The contract lies there before a line that names it.
    assert [key.split("/")[0] for key in puts] == ["contracts", "ledger"]
    # A batch that comes again replaces its object.
    writer.process(batch[::-1], invocation())
    assert len(cloud.keys("ledger/")) == 1


def test_the_writer_reads_one_message_at_a_time(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Reading:
        def put_messages(
            self, folder: str, held: Collection[str], at_ms: int, lines: Iterable[str]
        ) -> frozenset[str]:
            done.extend(lines)
            return frozenset(held)

    def parse(text: str) -> LedgerMessage:
        done.append(f"read {text}")
        return LedgerMessage([f"line of {text}"], {})

    monkeypatch.setattr("lambdas.archive.ledger.parse_ledger_text", parse)
    writer = LedgerWriter(archive=cast(Archive, Reading()), clock=lambda: NOW_MS)
    assert writer.process([message("m1", "1"), message("m2", "2")], invocation()) == frozenset()
    assert done == ["read 1", "line of 1", "read 2", "line of 2"]


def test_messages_that_there_is_no_time_for_come_again(cloud: Cloud) -> None:
    left = iter([RESERVE_MS, RESERVE_MS - 1])
    writer = LedgerWriter(archive=Archive(cloud.s3, BUCKET), clock=lambda: NOW_MS)
    first, second = held('{"id":"1"}'), held('{"id":"22"}', '{"id":"3"}')
    assert writer.process([first, second], Invocation("i", lambda: next(left))) == {second.id}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["1"]


def test_a_batch_without_an_object_comes_again(cloud: Cloud) -> None:
    archive = Archive(Unwilling(cloud.s3, "put_object"), BUCKET)
    writer = LedgerWriter(archive=archive, clock=lambda: NOW_MS)
    sent = held('{"id":"1"}')
    assert writer.process([sent], invocation()) == {sent.id}


def test_without_its_contract_a_message_comes_again_and_takes_no_other_with_it(
    cloud: Cloud, contract: Contract
) -> None:
    class NoContracts:
        def put_object(self, *, Key: str, **request: Any) -> Any:  # noqa: N803
            client = Unwilling(cloud.s3, "put_object") if Key.startswith("contracts/") else cloud.s3
            return client.put_object(Key=Key, **request)

    writer = LedgerWriter(archive=Archive(NoContracts(), BUCKET), clock=lambda: NOW_MS)
    first, other = held('{"id":"1"}', contracts={contract.version: contract.canonical}), held('{"id":"2"}')
    assert writer.process([first, other, message("bad", "?")], invocation()) == {first.id, "bad"}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["2"]


def test_a_contract_that_there_is_no_time_for_comes_again(cloud: Cloud, contract: Contract) -> None:
    writer = LedgerWriter(archive=Archive(cloud.s3, BUCKET), clock=lambda: NOW_MS)
    first = held('{"id":"1"}', contracts={contract.version: contract.canonical})
    assert writer.process([first], Invocation("i", lambda: RESERVE_MS - 1)) == {first.id}
    assert cloud.keys("") == []


def test_a_contract_goes_with_the_first_records_and_not_again(cloud: Cloud, contract: Contract) -> None:
    ledger = ledger_of(cloud)
    for name in ("one", "two"):
        ledger.file(contract)
        ledger.write(name, records(1), NOW_MS, lambda: True)
    bodies = cloud.sqs.receive_message(QueueUrl=cloud.ledger, MaxNumberOfMessages=10)["Messages"]
    assert [list(parse_ledger_text(each["Body"]).contracts) for each in bodies] == [[contract.version], []]


def test_what_the_queue_refuses_goes_to_the_archive_with_its_contract(
    cloud: Cloud, contract: Contract
) -> None:
    ledger = ledger_of(cloud, sqs=Unwilling(cloud.sqs, "send_message_batch"))
    ledger.file(contract)
    ledger.write("request-7", records(2), NOW_MS, lambda: True)
    assert cloud.keys("") == [
        f"contracts/{contract.version}.json",
        "ledger/date=2026-01-01/hour=00/request-7.json.gz",
    ]
    assert [line["id"] for line in cloud.lines("ledger/")] == ["0", "1"]


def test_a_contract_that_neither_takes_goes_with_the_next_records(cloud: Cloud, contract: Contract) -> None:
    sqs = Unwilling(cloud.sqs, "send_message_batch", queue_urls=[cloud.ledger])
    ledger = ledger_of(cloud, sqs=sqs, s3=Unwilling(cloud.s3, "put_object"))
    ledger.file(contract)
    with pytest.raises(LedgerError, match="2 decisions are not durable"):
        ledger.write("one", records(2), NOW_MS, lambda: True)
    sqs.end()
    ledger.write("two", records(2), NOW_MS, lambda: True)
    assert len(cloud.decisions()) == 2
    assert cloud.keys("contracts/") == [f"contracts/{contract.version}.json"]


def test_without_time_the_archive_is_not_tried(cloud: Cloud) -> None:
    ledger = ledger_of(cloud, sqs=Unwilling(cloud.sqs, "send_message_batch"))
    with pytest.raises(LedgerError):
        ledger.write("one", records(1), NOW_MS, lambda: False)
    assert cloud.keys("") == []


def test_no_call_for_the_ledger_begins_without_time(cloud: Cloud, contract: Contract) -> None:
    left = iter([True, False])
    sqs = Unwilling(cloud.sqs, "send_message_batch")
    ledger = ledger_of(cloud, sqs=sqs)
    ledger.file(contract)
    with pytest.raises(LedgerError):
        ledger.write("one", records(1), NOW_MS, lambda: next(left))
    assert cloud.keys("") == [f"contracts/{contract.version}.json"]
    # The contract is there, so that the lines have the time the next time.
    ledger.write("two", records(1), NOW_MS, lambda: True)
    assert len(cloud.lines("ledger/")) == 1

    sqs.end()
    many = [replace(each, id=NOISE.randbytes(50_000).hex()) for each in records(30)]
    with pytest.raises(LedgerError):
        ledger.write("three", many, NOW_MS, lambda: False)
    # The first message was one call, which every invocation has time for.
    assert len(cloud.sqs.receive_message(QueueUrl=cloud.ledger)["Messages"]) == 1


def test_the_contract_in_force_is_filed_with_the_ledger(cloud: Cloud, run: Run, contract: Contract) -> None:
    run(message("m1", frame(event("1").json.encode())))
    run(message("m2", frame(event("2").json.encode())), invocation_id="invocation-2")
    assert len(cloud.decisions()) == 2
    assert cloud.keys("contracts/") == [f"contracts/{contract.version}.json"]
