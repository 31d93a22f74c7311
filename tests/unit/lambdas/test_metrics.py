"""The figures that functions write: by what they do, and none that costs without saying anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.metrics.provider.cloudwatch_emf import cloudwatch

from lambdas.common.metrics import Metric, count, metrics
from tests.unit.lambdas.support import figures

ROOT = Path(__file__).parents[3]

PROGRAM = """
from lambdas.common.metrics import Gauge, Metric, count, mark, measure, metrics
count(Metric.DELIVERED, 3)
count(Metric.DEAD_LETTERED, 0)
count(Metric.RETRIED, 2)
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


def test_functions_that_do_the_same_write_one_metric_and_retries_are_also_by_function() -> None:
    router = {"service": "eventplane-dev-router"}
    assert written() == [
        ({"service": "eventplane-dev-router-audit"}, {"Retried": [2]}),
        (router, {"DeviceFlooding": [1]}),
        # No DeadLettered: a 0 would be paid for. The gauge says that somebody looked.
        (router, {"Delivered": [3], "Retried": [2], "DeadLetters": [0]}),
    ]


def test_what_another_thread_counts_while_figures_are_written_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = threading.Thread(target=count, args=(Metric.CONTRACT_UNCHECKED,))

    def write(text: str) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)
        sys.stdout.write(f"{text}\n")

    monkeypatch.setattr(cloudwatch, "print", write, raising=False)
    count(Metric.MESSAGES)
    metrics.flush_metrics()
    other.join()
    metrics.flush_metrics()
    assert [set(figures(line)) for line in capsys.readouterr().out.splitlines()] == [
        {"Messages"},
        {"ContractUnchecked"},
    ]
