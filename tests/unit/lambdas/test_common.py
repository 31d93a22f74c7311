"""The adapters that the functions share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.retries.standard import ExponentialBackoff

from eventplane.contract import Contract, ContractError
from eventplane.envelope import write_event
from eventplane.sqs_binding import to_message
from lambdas.common.archive import Archive
from lambdas.common.aws import PATIENT, QUICK, Patience, client
from lambdas.common.contracts import CONTRACT_FILE, load_contract
from lambdas.common.sender import TAKEN, Answer, Fate
from lambdas.common.sqs import MAX_BYTES, MAX_ENTRIES, SqsSender, batches
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import BUCKET, NOW_MS, Cloud, event


@pytest.mark.parametrize("patience", [PATIENT, QUICK])
def test_the_worst_call_includes_the_pause_between_its_attempts(
    monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
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


def test_a_batch_has_at_most_ten_messages_and_one_mebibyte_with_its_attributes() -> None:
    sizes = [len(batch) for batch in batches(to_message(event(str(each))) for each in range(23))]
    assert sizes == [MAX_ENTRIES, MAX_ENTRIES, 3]
    large = write_event({"id": "1", "source": "/a", "type": "t"}, "ä" * 45_000)
    messages = [to_message(large, {"hint": "x" * 60_000}) for _ in range(10)]
    cut = list(batches(messages))
    assert [len(batch) for batch in cut] == [6, 4]
    assert all(sum(each.bytes for each in batch) <= MAX_BYTES for batch in cut)


def test_an_entry_that_the_answer_forgets_was_not_taken() -> None:
    class Forgetful:
        def send_message_batch(self, **_: Any) -> Any:
            return {"Successful": [{"Id": "1"}]}

    batch = [to_message(event("1")), to_message(event("2"))]
    assert SqsSender(Forgetful()).send("https://queue", batch) == [
        Answer(Fate.AGAIN, "SQS said nothing of it"),
        TAKEN,
    ]


def test_a_fifo_queue_gets_groups_and_deduplication(cloud: Cloud) -> None:
    url = cloud.sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    batch = [to_message(event("1")), to_message(event("2")), to_message(event("2"))]
    batch.append(to_message(event("3", partitionkey="other")))
    assert SqsSender(cloud.sqs).send(url, batch) == [TAKEN] * 4

    received = cloud.sqs.queue(url).messages
    groups = {json.loads(each.body)["id"]: each.group for each in received}
    assert len(received) == 3
    assert groups["1"] == groups["2"] != groups["3"]


def test_a_contract_is_filed_once_also_by_another_function(cloud: Cloud) -> None:
    for _ in range(2):
        s3 = FailingClient(cloud.s3, targets=())
        archive = Archive(s3, BUCKET)
        for _ in range(2):
            archive.file_contract(cloud.contract.version, cloud.contract.canonical)
        assert s3.asked == [("put_object", BUCKET)]
    assert cloud.read(f"contracts/{cloud.contract.version}.json") == cloud.contract.canonical


# The second says that two were at it at a time, and not that one of them did it (Amazon S3 guide).
@pytest.mark.parametrize("code", ["AccessDenied", "ConditionalRequestConflict"])
def test_any_other_refusal_to_file_is_raised(cloud: Cloud, contract: Contract, code: str) -> None:
    archive = Archive(FailingClient(cloud.s3, "put_object", code=code), BUCKET)
    with pytest.raises(ClientError):
        archive.file_contract(contract.version, contract.canonical)


def test_equal_lines_make_equal_objects(cloud: Cloud) -> None:
    archive = Archive(cloud.s3, BUCKET)
    keys = [archive.put_lines("ledger", name, NOW_MS, ["a", "b"]) for name in ("one", "two")]
    assert keys[0] == "ledger/date=2026-01-01/hour=00/one.json.gz"
    one, two = (cloud.read(key or "") for key in keys)
    assert one == two


def test_the_bundled_contract_is_the_one_that_was_compiled(tmp_path: Any, contract: Contract) -> None:
    (tmp_path / CONTRACT_FILE).write_bytes(contract.canonical)
    assert load_contract(tmp_path) == contract
    (tmp_path / CONTRACT_FILE).write_bytes(contract.canonical[:-1])
    with pytest.raises(ContractError):
        load_contract(tmp_path)
