"""The ledger's way to the archive: by its queue, or else by S3, and each contract before its lines."""

import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from os import urandom
from typing import Any, cast

import pytest

from eventplane.batch import pack
from eventplane.ledger import LedgerMessage, LedgerRecord, ledger_texts, parse_ledger_text
from lambdas.archive.ledger import RESERVE_MS, LedgerWriter
from lambdas.common.archive import Archiver
from lambdas.common.ledger import LedgerError
from lambdas.common.queue import Invocation, QueueMessage
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import BUCKET, NOW_MS, Cloud, event, frame, invocation, message

pytestmark = pytest.mark.source("P4")

NOISE = random.Random(1)


def held(*lines: str, contracts: dict[str, bytes] | None = None) -> QueueMessage:
    """A message of the ledger's queue."""
    ((text, _),) = ledger_texts(lines, contracts or {})
    return message(f"m-{len(text)}", text)


def records(cloud: Cloud, number: int) -> list[LedgerRecord]:
    """The records of so many readings."""
    sent = message("m1", frame(pack([event(str(each)) for each in range(number)])))
    return [step.record for step in cloud.engine().planner.plan(sent, NOW_MS)]


def writing(cloud: Cloud, *messages: QueueMessage, s3: Any = None, **options: Any) -> frozenset[str]:
    """Have the writer archive messages; the ids of those that come again."""
    writer = LedgerWriter(archive=Archiver(s3 or cloud.s3, BUCKET, urandom), clock=cloud.clock)
    return writer.process(messages, Invocation("i", options.get("remaining_ms", lambda: 30_000)))


@pytest.mark.lost_answers
def test_a_batch_is_one_object(cloud: Cloud) -> None:
    own = {cloud.contract.version: cloud.contract.canonical}
    batch = [held('{"id":"1"}', contracts=own), held('{"id":"22"}', '{"id":"3"}', contracts=own)]
    assert writing(cloud, *batch) == frozenset()
    assert [line["id"] for line in cloud.lines("ledger/date=2026-01-01/hour=00/")] == ["1", "22", "3"]
    assert cloud.read(f"contracts/{cloud.contract.version}.json") == cloud.contract.canonical
    # The contract lies there before a line that names it, and the object before its entry in a list.
    assert [key.split("/")[0] for key in cloud.s3.buckets[BUCKET]] == ["contracts", "ledger", "written"]
    # A batch that comes again is safe already.
    assert writing(cloud, *batch[::-1]) == frozenset()
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
    writer = LedgerWriter(archive=cast(Archiver, Reading()), clock=cloud.clock)
    assert writer.process([message("m1", "1"), message("m2", "2")], invocation()) == frozenset()
    assert done == ["read 1", "line of 1", "read 2", "line of 2"]


def test_unwritten_messages_come_again(cloud: Cloud) -> None:
    left = iter([RESERVE_MS, RESERVE_MS - 1])
    first, second = held('{"id":"1"}'), held('{"id":"22"}', '{"id":"3"}')
    assert writing(cloud, first, second, remaining_ms=lambda: next(left)) == {second.id}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["1"]
    assert writing(cloud, second, s3=FailingClient(cloud.s3, "put_object")) == {second.id}


def test_a_message_waits_for_its_contract(cloud: Cloud) -> None:
    no_contracts = FailingClient(
        cloud.s3, "put_object", refused=lambda request: request["Key"].startswith("contracts/")
    )
    first = held('{"id":"1"}', contracts={cloud.contract.version: cloud.contract.canonical})
    other = held('{"id":"2"}')
    assert writing(cloud, first, other, message("bad", "?"), s3=no_contracts) == {first.id, "bad"}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["2"]
    # Nor is it filed without time.
    assert writing(cloud, first, remaining_ms=lambda: RESERVE_MS - 1) == {first.id}
    assert cloud.keys("contracts/") == []


def test_a_contract_goes_with_the_first_records_and_not_again(cloud: Cloud) -> None:
    ledger = cloud.ledger_of()
    for name in ("one", "two"):
        ledger.file(cloud.contract)
        ledger.write(name, records(cloud, 1), NOW_MS, lambda: True)
    found = [list(parse_ledger_text(body).contracts) for body in cloud.sqs.take(cloud.ledger)]
    assert found == [[cloud.contract.version], []]


def test_a_refused_handover_is_archived(cloud: Cloud) -> None:
    ledger = cloud.ledger_of(sqs=FailingClient(cloud.sqs, "send_message_batch"))
    ledger.file(cloud.contract)
    ledger.write("request-7", records(cloud, 2), NOW_MS, lambda: True)
    key = "ledger/date=2026-01-01/hour=00/request-7.json.gz"
    *others, entry = cloud.keys()
    assert others == [f"contracts/{cloud.contract.version}.json", key]
    assert entry.startswith(f"written/{key}.")
    assert [line["id"] for line in cloud.lines("ledger/")] == ["0", "1"]


@pytest.mark.lost_answers
def test_a_contract_that_neither_takes_goes_with_the_next_records(cloud: Cloud) -> None:
    sqs = FailingClient(cloud.sqs, "send_message_batch")
    ledger = cloud.ledger_of(sqs=sqs, s3=FailingClient(cloud.s3, "put_object"))
    ledger.file(cloud.contract)
    with pytest.raises(LedgerError, match="2 decisions are not stored"):
        ledger.write("one", records(cloud, 2), NOW_MS, lambda: True)
    sqs.end()
    ledger.write("two", records(cloud, 2), NOW_MS, lambda: True)
    assert len(cloud.decisions()) == 2
    assert cloud.keys("contracts/") == [f"contracts/{cloud.contract.version}.json"]


def test_no_call_for_the_ledger_but_the_first_begins_without_time(cloud: Cloud) -> None:
    sqs = FailingClient(cloud.sqs, "send_message_batch")
    ledger = cloud.ledger_of(sqs=sqs)
    with pytest.raises(LedgerError):
        ledger.write("none", records(cloud, 1), NOW_MS, lambda: False)
    assert cloud.keys() == []
    left = iter([True, False])
    ledger.file(cloud.contract)
    with pytest.raises(LedgerError):
        ledger.write("one", records(cloud, 1), NOW_MS, lambda: next(left))
    assert cloud.keys() == [f"contracts/{cloud.contract.version}.json"]
    # The contract is there, so that the lines have the time the next time; to list them there is none.
    left = iter([True, True, False])
    ledger.write("two", records(cloud, 1), NOW_MS, lambda: next(left))
    assert len(cloud.lines("ledger/")) == 1
    assert cloud.keys("written/") == []

    sqs.end()
    many = [replace(each, id=NOISE.randbytes(50_000).hex()) for each in records(cloud, 30)]
    with pytest.raises(LedgerError):
        ledger.write("three", many, NOW_MS, lambda: False)
    # The first message was one call, which every invocation has time for.
    assert len(cloud.sqs.bodies(cloud.ledger)) == 1
