"""The webhook function's entry: settings in, partial batch response out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eventplane.settings import SettingsError
from lambdas.common.clock import system_clock
from lambdas.common.queue import QueueMessage, read_messages
from lambdas.common.queue_function import queue_function
from lambdas.http_sink import webhook as handler
from tests.endpoint import EndpointServer, answer
from tests.unit.lambdas.http_sink.test_service import alarm, contract_with, webhook_settings
from tests.unit.lambdas.support import (
    ALARM,
    Cloud,
    LambdaContext,
    deploy,
    failures,
    figures,
    message,
    sqs_event,
)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def now(id: str) -> QueueMessage:
    return replace(alarm(id), sent_at_ms=system_clock())


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with EndpointServer(answer(204), answer(500)) as server:
        yield server


@pytest.fixture
def deployed(
    cloud: Cloud, server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The environment that the stacks give the function."""
    settings = webhook_settings(cloud)
    deploy(monkeypatch, tmp_path, contract_with(), {**settings, "WEBHOOK_URL": server.url()})
    reader = cache(handler.service)
    monkeypatch.setattr(handler, "handle", queue_function(reader))
    yield
    if reader.cache_info().currsize:
        reader().process.__self__.attempt.__self__.endpoint.close()


def invoke(*messages: QueueMessage) -> Any:
    return handler.handle(sqs_event(*messages), LambdaContext(remaining_ms=60_000))


@pytest.mark.usefixtures("deployed")
def test_what_is_delivered_is_acknowledged_and_what_is_not_comes_again(server: EndpointServer) -> None:
    assert invoke(now("1"), now("2")) == failures("m2")
    assert len(server.received) == 2
    # The next invocation has the same connection.
    assert invoke(now("3")) == failures()
    assert server.connections == 1


@pytest.mark.usefixtures("deployed")
def test_the_figures_of_an_invocation_are_in_its_log_and_so_is_what_did_not_arrive(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    old = replace(alarm("3", expirytime="2026-01-01T00:00:00Z", traceparent=TRACE), route="urgent-alarms")
    failing = replace(alarm("2", traceparent=TRACE), sent_at_ms=system_clock(), route="urgent-alarms")
    invoke(now("1"), failing, old, message("m4", "no event"))
    assert figures(capsys.readouterr().out) == {
        "Messages": 4,
        "Delivered": 1,
        "Retried": 1,
        "Expired": 1,
        "DeadLettered": 1,
    }
    said = {each["message_id"]: each for each in map(vars, caplog.records) if "reason" in each}
    assert {id: line["reason"] for id, line in said.items()} == {
        "m2": "endpoint_failed",
        "m3": "expirytime",
        "m4": "not_json",
    }
    for line in (said["m2"], said["m3"]):
        assert (line["event_source"], line["event_type"]) == ("/homes/1", ALARM)
        assert (line["traceparent"], line["route"]) == (TRACE, "urgent-alarms")


@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EVENTPLANE_CONCURRENCY", "0", "is 0, not 1 or more"),
        ("EVENTPLANE_SOURCE", "family-app.inbox", "names family-app.inbox, which is no webhook"),
    ],
)
def test_a_wrong_setting_is_named(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} {said}"):
        invoke(alarm("1"))


def test_a_message_of_a_fifo_queue_knows_its_group() -> None:
    batch = sqs_event(message("m1", "x"))
    assert [(each.receipt, each.group) for each in read_messages(batch)] == [("handle-m1", None)]
    batch["Records"][0]["attributes"]["MessageGroupId"] = "g"
    assert read_messages(batch)[0].group == "g"


@pytest.mark.usefixtures("deployed")
def test_an_endpoint_that_is_not_on_the_internet_gets_nothing(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVENTPLANE_SINKS", "internet")
    monkeypatch.setenv("EVENTPLANE_SINK_PORTS", f"[443, {server.port}]")
    assert invoke(now("1")) == failures("m1")
    assert server.connections == 0
    (said,) = (each for each in map(vars, caplog.records) if "reason" in each)
    assert said["reason"] == "endpoint_forbidden"
    assert "leads to 127.0.0.1, which is not a public address (loopback)" in said["detail"]
