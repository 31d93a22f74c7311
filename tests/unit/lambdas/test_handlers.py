"""The functions' entries: settings in, partial batch response out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from eventplane.contract import Contract
from eventplane.contract.publication import KEY
from eventplane.settings import SettingsError
from lambdas.archive import ledger, tap
from lambdas.common import queue_function as queue_function_module
from lambdas.common.backoff import FIRST_S, LONGEST_S, LONGEST_URGENT_S
from lambdas.common.contracts import CONTRACT_FILE
from lambdas.common.metrics import metrics
from lambdas.common.queue_function import queue_function
from lambdas.replay import handler as replay
from lambdas.router import handler as router
from lambdas.router import wiring
from lambdas.router.active_contract import RETRY_MS
from tests.dynamodb import create_table
from tests.otlp import otlp_receiver
from tests.unit.lambdas.support import (
    BUCKET,
    INTEREST,
    NOW_MS,
    SUBSCRIPTIONS,
    TABLE,
    Cloud,
    LambdaContext,
    event,
    figures,
    frame,
    message,
    sqs_event,
)

HANDLERS = (router, tap, ledger, replay)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def deployed(cloud: Cloud, contract: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the stacks give the functions."""
    (tmp_path / CONTRACT_FILE).write_bytes(contract.canonical)
    for name, value in {
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "EVENTPLANE_SOURCE": "device.outbox",
        "EVENTPLANE_PRIORITY": "normal",
        "EVENTPLANE_LEDGER_QUEUE": cloud.ledger,
        "EVENTPLANE_QUEUES": json.dumps(cloud.queues),
        "EVENTPLANE_SOURCE_QUEUE": cloud.source,
        "EVENTPLANE_ARCHIVE_BUCKET": BUCKET,
        "EVENTPLANE_CONTRACTS_TABLE": TABLE,
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": SUBSCRIPTIONS,
        "EVENTPLANE_INTEREST_TABLE": INTEREST,
        "EVENTPLANE_CONTRACT_REFRESH_S": "30",
        "POWERTOOLS_SERVICE_NAME": "function",
    }.items():
        monkeypatch.setenv(name, value)
    metrics.clear_metrics()
    for module in HANDLERS:
        monkeypatch.setattr(module, "system_clock", lambda: NOW_MS)
        # Wired anew, as in a new process.
        monkeypatch.setattr(module, "handle", queue_function(module.service))


@pytest.mark.parametrize("handler", [router, tap, replay])
def test_a_good_batch_is_acknowledged_whole(handler: ModuleType) -> None:
    batch = sqs_event(message("m1", frame(event("1").json.encode())), message("m2", "no frame"))
    assert handler.handle(batch, LambdaContext()) == {"batchItemFailures": []}


def test_the_router_s_ledger_gets_to_the_archive_by_its_writer(cloud: Cloud) -> None:
    router.handle(sqs_event(message("m1", frame(event("1").json.encode()))), LambdaContext())
    assert len(cloud.received("care-analytics.inbox")) == 1
    (sent,) = cloud.sqs.receive_message(QueueUrl=cloud.ledger)["Messages"]
    batch = sqs_event(message(sent["MessageId"], sent["Body"]))
    assert ledger.handle(batch, LambdaContext()) == {"batchItemFailures": []}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["1"]


def test_an_urgent_message_waits_seconds_however_often_it_came(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTPLANE_PRIORITY", "urgent")
    waits = redelivered(router, monkeypatch)
    cloud.sqs.delete_queue(QueueUrl=cloud.queues["alarm-centre.inbox"])
    alarm = message("m1", frame(event("1", "org.eventplane.alarm.keyword.v1").json.encode()), attempt=100)
    assert router.handle(sqs_event(alarm), LambdaContext())["batchItemFailures"]
    (waited,) = waits()
    assert 10 <= waited <= LONGEST_URGENT_S


def test_the_router_tells_a_collector_of_its_spans_where_it_is_told_to(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = frame(event("1").json.encode())
    monkeypatch.setattr("lambdas.common.span_export.PATIENCE_S", 60.0)  # on a busy machine
    with otlp_receiver() as receiver:
        monkeypatch.setenv("EVENTPLANE_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("EVENTPLANE_TRACE_SHARE", "1")
        assert router.handle(sqs_event(message("m1", body)), LambdaContext()) == {"batchItemFailures": []}
    assert {each.service for each in receiver.spans} == {"device", "function"}


def test_failed_messages_are_named_one_by_one_and_nothing_is_raised(cloud: Cloud) -> None:
    cloud.sqs.delete_queue(QueueUrl=cloud.queues["alarm-centre.inbox"])
    good = message("m1", frame(event("1").json.encode()))
    bad = message("m2", frame(event("2", "org.eventplane.alarm.keyword.v1").json.encode()))
    assert router.handle(sqs_event(good, bad), LambdaContext()) == {
        "batchItemFailures": [{"itemIdentifier": "m2"}]
    }
    assert router.handle(sqs_event(bad), LambdaContext()) == {"batchItemFailures": [{"itemIdentifier": "m2"}]}


def test_the_figures_of_an_invocation_are_in_its_log_and_so_is_what_did_not_arrive(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    good = message("m1", frame(event("1", "org.eventplane.alarm.keyword.v1").json.encode()))
    odd = message("m2", frame(event("2", "com.example.unknown", traceparent=TRACE).json.encode()))
    router.handle(sqs_event(good, odd), LambdaContext())

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (figures,) = (line for line in lines if "_aws" in line)
    assert figures["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "EventPlane"
    assert {name: value for name, value in figures.items() if isinstance(value, list)} == {
        "Messages": [2],
        "Delivered": [3],
        "DeadLettered": [1],
        "DeliveryDelay": [1_000],
        "UrgentDeliveryDelay": [1_000],
    }
    (refused,) = (vars(line) for line in caplog.records if line.message == "dead_lettered")
    found = {
        name: refused[name] for name in ("sender", "event_source", "event_id", "traceparent", "message_id")
    }
    assert found == {
        "sender": "home-1/",
        "event_source": "/homes/1",
        "event_id": "2",
        "traceparent": TRACE,
        "message_id": "m2",
    }


@pytest.mark.parametrize("handler", [router, replay])
def test_a_batch_waits_for_the_contract_in_force_and_not_longer(
    cloud: Cloud, handler: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = NOW_MS
    monkeypatch.setattr(wiring, "system_clock", lambda: now_ms)
    cloud.dynamodb.delete_table(TableName=TABLE)
    waits = redelivered(handler, monkeypatch)
    # The last receives of both queues, and an early one.
    batch = sqs_event(message("m1", "?", attempt=50), message("m2", "?", attempt=1))

    failed = handler.handle(batch, LambdaContext())["batchItemFailures"]
    assert [each["itemIdentifier"] for each in failed] == ["m1", "m2"]
    last, first = waits()
    assert (last, first <= FIRST_S) == (LONGEST_S, True)
    assert figures(capsys.readouterr().out)["ContractUnseen"] == 2

    create_table(cloud.dynamodb, TABLE, KEY)
    now_ms += RETRY_MS
    assert handler.handle(batch, LambdaContext()) == {"batchItemFailures": []}


def redelivered(handler: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Have `handler` set visibility at a queue of the test's; the result gives the waits, seconds."""
    wait_s = Mock(return_value={})
    real = queue_function_module.client

    def client(service: str, *arguments: Any) -> Any:
        return Mock(change_message_visibility_batch=wait_s) if service == "sqs" else real(service, *arguments)

    monkeypatch.setattr(queue_function_module, "client", client)
    monkeypatch.setattr(handler, "handle", queue_function(handler.service))
    return lambda: [each["VisibilityTimeout"] for each in wait_s.call_args.kwargs["Entries"]]


@pytest.mark.filterwarnings("ignore:No application metrics")
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_missing_setting_is_named(handler: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENTPLANE_ARCHIVE_BUCKET")
    with pytest.raises(SettingsError, match="EVENTPLANE_ARCHIVE_BUCKET is not set"):
        handler.handle(sqs_event(message("m1", "?")), LambdaContext())
