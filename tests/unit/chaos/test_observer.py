"""Queues are sampled as Amazon SQS measures them, and failed batches are read from the cloud's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from local.chaos.alarms import AGE, Observer
from local.cloud import CloudEndpoint
from local.emulator import QueuedMessage

CLOUD = CloudEndpoint("http://127.0.0.1:1", "us-east-1", "000000000000", "", 0, "", "", "")
QUEUE = frozenset({("QueueName", "ingest")})


def value(observer: Observer, metric: str) -> list[float]:
    return observer.metrics.within(("AWS/SQS", metric, QUEUE), 0, 1e12)


def test_a_queue_is_sampled(tmp_path: Path) -> None:
    observer = Observer(CLOUD, ["ingest"], tmp_path / "log")
    fresh, hidden = QueuedMessage("a", 90.0, 0, True), QueuedMessage("b", 70.0, 2, False)
    stuck = QueuedMessage("c", 10.0, 3, True)  # Amazon SQS leaves it out of the age
    observer._sample("ingest", [fresh, hidden, stuck], 100.0)
    observer._sample("ingest", [stuck], 101.0)
    assert value(observer, AGE) == [30.0, 0.0]
    assert value(observer, "ApproximateNumberOfMessagesVisible") == [2.0, 1.0]
    assert value(observer, "ApproximateNumberOfMessagesNotVisible") == [1.0, 0.0]
    assert value(observer, "NumberOfMessagesSent") == [3.0, 0.0]


class Logs:
    """One group with the lines of one invocation."""

    def describe_log_groups(self, **_: str) -> dict[str, Any]:
        return {"logGroups": [{"logGroupName": "/aws/lambda/router-device"}]}

    def get_paginator(self, _: str) -> Logs:
        return self

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        lines = ["START RequestId: 1", "REPORT RequestId: 1\tDuration: 5 ms"]
        return [{"events": [{"timestamp": 7_000, "message": each} for each in lines]}]


def test_invocations_and_errors_are_those_of_a_function_and_of_the_account(tmp_path: Path) -> None:
    class Cloud:
        def client(self, _: str) -> Logs:
            return Logs()

    log = tmp_path / "log"
    log.write_text(
        "2026-11-23 06:19:26 WARNING [lambda] ESM: Lambda router-device failed processing SQS batch\n"
    )
    observer = Observer(Cloud(), [], log)  # type: ignore[arg-type]
    observer.read_logs()
    for dimensions in (frozenset({("FunctionName", "router-device")}), frozenset[tuple[str, str]]()):
        for metric in ("Invocations", "Errors"):
            assert observer.metrics.within(("AWS/Lambda", metric, dimensions), 0, 1e12) == [1.0]
