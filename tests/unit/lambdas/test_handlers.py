"""The functions' entries: settings in, partial batch response out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from eventplane.contract import Contract
from lambdas.archive_writer import handler as archive_writer
from lambdas.common.contracts import CONTRACT_FILE
from lambdas.common.settings import SettingsError
from lambdas.router import handler as router
from tests.unit.lambdas.support import BUCKET, Cloud, LambdaContext, event, frame, message, sqs_event


@pytest.fixture(autouse=True)
def deployed(
    cloud: Cloud, contract: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The environment that the stacks give the functions."""
    (tmp_path / CONTRACT_FILE).write_bytes(contract.canonical)
    for name, value in {
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "EVENTPLANE_SOURCE": "device.outbox",
        "EVENTPLANE_QUEUES": json.dumps(cloud.queues),
        "EVENTPLANE_ARCHIVE_BUCKET": BUCKET,
    }.items():
        monkeypatch.setenv(name, value)
    for handler in (router, archive_writer):
        handler.service.cache_clear()
    yield
    for handler in (router, archive_writer):
        handler.service.cache_clear()


@pytest.mark.parametrize("handler", [router, archive_writer])
def test_a_good_batch_is_acknowledged_whole(handler: ModuleType) -> None:
    batch = sqs_event(message("m1", frame(event("1").json.encode())), message("m2", "no frame"))
    assert handler.handle(batch, LambdaContext()) == {"batchItemFailures": []}


def test_the_router_delivers_and_names_the_ledger_by_its_invocation(cloud: Cloud) -> None:
    batch = sqs_event(message("m1", frame(event("1").json.encode())))
    router.handle(batch, LambdaContext(aws_request_id="request-7"))
    assert len(cloud.received("care-analytics.inbox")) == 1
    assert cloud.keys("ledger/")[0].endswith("/request-7.json.gz")


def test_failed_messages_are_named_one_by_one_and_nothing_is_raised(cloud: Cloud) -> None:
    cloud.sqs.delete_queue(QueueUrl=cloud.queues["alarm-centre.inbox"])
    good = message("m1", frame(event("1").json.encode()))
    bad = message("m2", frame(event("2", "org.eventplane.alarm.keyword.v1").json.encode()))
    assert router.handle(sqs_event(good, bad), LambdaContext()) == {
        "batchItemFailures": [{"itemIdentifier": "m2"}]
    }
    assert router.handle(sqs_event(bad), LambdaContext()) == {"batchItemFailures": [{"itemIdentifier": "m2"}]}


@pytest.mark.parametrize("handler", [router, archive_writer])
def test_a_missing_setting_is_named(handler: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENTPLANE_ARCHIVE_BUCKET")
    with pytest.raises(SettingsError, match="EVENTPLANE_ARCHIVE_BUCKET is not set"):
        handler.handle(sqs_event(message("m1", "?")), LambdaContext())
