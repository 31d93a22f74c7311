"""The functions' entries: their settings, partial batch responses, and when they are wired."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from eventplane.contract.publication import KEY, cloud_destinations
from eventplane.retries import FIRST_S, LONGEST_S, URGENT_S
from lambdas.archive import ledger, tap
from lambdas.common import queue_function as queue_function_module
from lambdas.common.queue_function import IN_LAMBDA, QueueReader, queue_function
from lambdas.common.system import system_clock
from lambdas.router import handler as router
from lambdas.router import wiring
from lambdas.router.active_contract import RETRY_MS
from parts.replay import handler as replay
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.otlp import otlp_receiver
from tests.unit.lambdas.support import (
    ALARM,
    BUCKET,
    DAWN,
    TABLE,
    TABLES,
    Cloud,
    LambdaContext,
    deploy,
    event,
    failures,
    figures,
    frame,
    message,
    sqs_event,
    with_route,
)

HANDLERS = (router, tap, ledger, replay)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GOOD = message("m1", frame(event("1")))
MESSAGE = "org.eventplane.home.message.v1"


@pytest.fixture
def deployed(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The plane, and the environment that the stacks give the functions."""
    settings = {
        "SOURCE": "device.outbox",
        "PRIORITY": "normal",
        "LEDGER_QUEUE": cloud.ledger,
        "QUEUES": cloud.queues,
        "SOURCE_QUEUE": cloud.source,
        "ARCHIVE_BUCKET": BUCKET,
        **TABLES,
    }
    deploy(monkeypatch, tmp_path, cloud.contract, settings)
    for module in (*HANDLERS, wiring):
        monkeypatch.setattr(module, "system_clock", cloud.clock)
    return cloud


def invoke(handler: ModuleType, *messages: Any) -> Any:
    """The response of a new process of a function."""
    return queue_function(handler.service)(sqs_event(*messages), LambdaContext())


@pytest.mark.parametrize("handler", [router, tap, replay])
@pytest.mark.lost_answers
def test_a_good_batch_is_acknowledged_whole(deployed: Cloud, handler: ModuleType) -> None:
    assert invoke(handler, GOOD, message("m2", "no frame")) == failures()


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_call_without_messages_only_warms_the_function_up(deployed: Cloud, handler: ModuleType) -> None:
    assert invoke(handler) == failures()


@pytest.mark.lost_answers
def test_the_ledger_writer_archives_the_router_s_ledger(deployed: Cloud) -> None:
    invoke(router, GOOD)
    assert deployed.copies() == {"care-analytics.inbox": 1}
    assert invoke(ledger, message("m1", *deployed.sqs.bodies(deployed.ledger))) == failures()
    assert [line["id"] for line in deployed.lines("ledger/")] == ["1"]


def redelivered(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Have functions set visibility at a queue of the test's; the result gives the waits, seconds."""
    wait_s = Mock(return_value={})
    real = queue_function_module.client

    def client(service: str, *arguments: Any) -> Any:
        return Mock(change_message_visibility_batch=wait_s) if service == "sqs" else real(service, *arguments)

    monkeypatch.setattr(queue_function_module, "client", client)
    return lambda: [each["VisibilityTimeout"] for each in wait_s.call_args.kwargs["Entries"]]


@pytest.mark.parametrize(
    ("priority", "least_s", "most_s"), [("normal", 0.75 * 3_600 / 4, LONGEST_S), ("urgent", 1, URGENT_S)]
)
def test_failed_messages_wait_by_age(
    deployed: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    priority: str,
    least_s: float,
    most_s: int,
) -> None:
    monkeypatch.setenv("EVENTPLANE_PRIORITY", priority)
    waits = redelivered(monkeypatch)
    deployed.sqs.delete_queue(QueueUrl=deployed.queues["alarm-centre.inbox"])
    failing = replace(message("m2", frame(event("2", ALARM)), 2), sent_at_ms=system_clock() - 3_600_000)
    assert invoke(router, GOOD, failing) == failures("m2")
    (waited,) = waits()
    assert least_s <= waited <= most_s


@pytest.mark.parametrize("priority", ["normal", "urgent"])
def test_both_routers_judge_by_a_candidate(
    deployed: Cloud, monkeypatch: pytest.MonkeyPatch, priority: str
) -> None:
    monkeypatch.setenv("EVENTPLANE_PRIORITY", priority)
    candidate = with_route(deployed.contract, "new", type=ALARM)
    deployed.offer(candidate)
    named = event("1", ALARM, devicecontract=candidate.version)
    assert invoke(router, message("m1", frame(named)), message("m2", frame(event("2", ALARM)))) == failures()
    routes = deployed.ledger_rows("id", "route")
    assert [(id, "new") in routes for id in ("1", "2")] == [True, False]


def test_queues_tell_services_apart(deployed: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sender, rights, and the queue in which a message waits are those of the queue that it lay in."""
    base = deployed.source.rpartition("/")[0]
    settings = {
        "SOURCE": "*",
        "SOURCE_QUEUE": f"{base}/eventplane-dev-*",
        "QUEUES": json.dumps({f"{base}/eventplane-dev-*": ["*"]}),
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"EVENTPLANE_{name}", value)
    for each in cloud_destinations(deployed.contract):
        if each.participant != "carers":
            deployed.queue(f"eventplane-dev-{each.address.replace('.', '-')}")
    waits = redelivered(monkeypatch)
    handle = queue_function(router.service)
    batches = {
        "carers": replace(message("m1", event("1", MESSAGE, todevice="home-1").json), attempt=2),
        "family-app": message("m2", event("2", MESSAGE, todevice="home-1").json),
    }
    answers = [
        handle(sqs_event(replace(each, queue=f"eventplane-dev-{name}-outbox")), LambdaContext())
        for name, each in batches.items()
    ]
    assert answers == [failures(), failures()]
    (sent,) = deployed.sqs.bodies(f"{base}/eventplane-dev-device-inbox")
    assert json.loads(sent)["senderservice"] == "carers"
    letters = deployed.sqs.bodies(f"{base}/eventplane-dev-operations-inbox")
    assert [json.loads(each)["data"]["reason"] for each in letters] == ["sender_not_allowed"]
    # What an inbox that is gone does not take waits in its own queue.
    deployed.sqs.delete_queue(QueueUrl=f"{base}/eventplane-dev-device-inbox")
    late = replace(batches["carers"], id="m3", queue="eventplane-dev-carers-outbox")
    assert handle(sqs_event(late), LambdaContext()) == failures("m3")
    assert len(waits()) == 1


@pytest.mark.parametrize("handler", [router, replay])
def test_a_batch_waits_until_the_contract_in_force_is_known(
    deployed: Cloud,
    handler: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployed.dynamodb.delete_table(TableName=TABLE)
    waits = redelivered(monkeypatch)
    handle = queue_function(handler.service)
    # One that has waited for long, and one that comes for the first time.
    batch = sqs_event(message("m1", "?", attempt=50), message("m2", "?", attempt=1))
    assert handle(batch, LambdaContext()) == failures("m1", "m2")
    last, first = waits()
    assert first == FIRST_S < 0.75 * LONGEST_S <= last <= LONGEST_S
    assert figures(capsys.readouterr().out)["ContractUnseen"] == 2
    create_table(deployed.dynamodb, TABLE, KEY)
    deployed.clock.now_ms += RETRY_MS
    assert handle(batch, LambdaContext()) == failures()


def test_spans_go_to_the_collector(deployed: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parts.tracing.export.PATIENCE_S", 60.0)  # on a busy machine
    assert router.service().process.__self__.spans is None  # type: ignore[attr-defined]
    with otlp_receiver() as receiver:
        monkeypatch.setenv("EVENTPLANE_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("EVENTPLANE_TRACE_SHARE", "1")
        assert invoke(router, GOOD) == failures()
    assert {each.service for each in receiver.spans} == {"device", "function"}


def test_an_invocation_writes_its_figures(
    deployed: Cloud, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    odd = message("m2", frame(event("2", "com.example.unknown", traceparent=TRACE)))
    late = message("m3", frame(event("3", expirytime=DAWN, traceparent=TRACE)))
    deployed.clock.now_ms += 1
    invoke(router, message("m1", frame(event("1", ALARM))), odd, late)
    output = capsys.readouterr().out
    assert '"Namespace":"EventPlane"' in output
    assert figures(output) == {
        "Messages": 3,
        "Delivered": 3,
        "DeadLettered": 1,
        "Expired": 1,
        "DeliveryDelay": 1_001,
        "UrgentDeliveryDelay": 1_001,
    }
    names = ("message", "sender", "event_source", "event_id", "traceparent", "message_id")
    said = [[line[name] for name in names] for line in map(vars, caplog.records) if "event_id" in line]
    assert sorted(said) == [
        ["dead_lettered", "home-1/", "/homes/1", "2", TRACE, "m2"],
        ["expired", "home-1/", "/homes/1", "3", TRACE, "m3"],
    ]


def test_the_reader_is_wired_once(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SOURCE_QUEUE", "https://queue")
    for is_in_lambda in (False, True):
        if is_in_lambda:
            monkeypatch.setenv(IN_LAMBDA, "function")
        wire = Mock(return_value=QueueReader(lambda *_: ()))
        handle = queue_function(wire)
        assert wire.call_count == is_in_lambda
        for _ in range(2):
            handle(sqs_event(message("m1", "")), LambdaContext())
        wire.assert_called_once_with()


_READ = """
import sys
if {absent}:
    sys.modules["orjson"] = None
from lab.benchmarks import workload
import lambdas.common.queue_function
from eventplane import fast_reader
from eventplane.envelope import parse_event, parse_strictly
assert parse_event(workload.event(1)) == parse_strictly(workload.event(1))
print(len(fast_reader.by_other_json))
"""


@pytest.mark.parametrize(("absent", "used"), [(False, 1), (True, 0)])
def test_functions_read_with_orjson_where_it_is_installed(absent: bool, used: int) -> None:
    if not absent:
        pytest.importorskip("orjson")
    command = [sys.executable, "-c", _READ.format(absent=absent)]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout) == used
