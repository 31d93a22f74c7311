"""Alarms of templates are evaluated as CloudWatch does, on metrics recorded as AWS measures them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.chaos.alarms import AGE, Alarm, Metrics, UnreadAlarmError, read_alarms

QUEUE = {"QueueName": "inbox"}


def alarms(folder: Path, *properties: dict[str, Any]) -> list[Alarm]:
    resources = {
        f"Alarm{number}": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {"AlarmName": f"a{number}", **each},
        }
        for number, each in enumerate(properties)
    }
    resources["Other"] = {"Type": "AWS::SQS::Queue", "Properties": {}}
    (folder / "monitoring.template.json").write_text(json.dumps({"Resources": resources}))
    return read_alarms(folder)


def single(statistic: str = "Sum", **properties: Any) -> dict[str, Any]:
    return {
        "Namespace": "AWS/SQS",
        "MetricName": AGE,
        "Dimensions": [{"Name": "QueueName", "Value": "inbox"}],
        "Statistic": statistic,
        "Period": 60,
        "Threshold": 5,
        "ComparisonOperator": "GreaterThanThreshold",
        **properties,
    }


def math(expression: str, **properties: Any) -> dict[str, Any]:
    stats = [
        {
            "Id": f"m{number}",
            "ReturnData": False,
            "MetricStat": {
                "Metric": {
                    "Namespace": "N",
                    "MetricName": name,
                    "Dimensions": [{"Name": "service", "Value": "f"}],
                },
                "Period": 300,
                "Stat": "Sum",
            },
        }
        for number, name in enumerate(("One", "Two"))
    ]
    return {
        "Metrics": [{"Id": "whole", "Expression": expression}, *stats],
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        **properties,
    }


def recorded() -> Metrics:
    metrics = Metrics()
    for at, value in enumerate((1.0, 4.0, 2.0)):
        metrics.add("AWS/SQS", AGE, QUEUE, at, value)
    return metrics


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ("Sum", 7.0),
        ("Maximum", 4.0),
        ("Minimum", 1.0),
        ("Average", 7 / 3),
        ("SampleCount", 3.0),
        ("p50", 2.0),
    ],
)
def test_a_statistic_is_taken_of_the_period(tmp_path: Path, statistic: str, value: float) -> None:
    (alarm,) = alarms(tmp_path, single(statistic))
    assert alarm.value(recorded(), 0, 3) == pytest.approx(value)
    assert alarm.value(recorded(), 3, 9) is None
    assert alarm.period_s == 60


@pytest.mark.parametrize(
    ("comparison", "threshold", "breached"),
    [
        ("GreaterThanThreshold", 7, False),
        ("GreaterThanOrEqualToThreshold", 7, True),
        ("LessThanThreshold", 7, False),
        ("LessThanOrEqualToThreshold", 7, True),
    ],
)
def test_the_threshold_is_compared_as_the_alarm_says(
    tmp_path: Path, comparison: str, threshold: float, *, breached: bool
) -> None:
    (alarm,) = alarms(tmp_path, single(ComparisonOperator=comparison, Threshold=threshold))
    assert alarm.is_breached(recorded(), 0, 3) is breached


def test_missing_data_breaches_where_the_alarm_says_so_and_over_a_whole_period(tmp_path: Path) -> None:
    good, bad = alarms(tmp_path, single(), single(TreatMissingData="breaching"))
    assert not good.is_breached(Metrics(), 0, 600)
    assert not bad.is_breached(Metrics(), 0, 59)
    assert bad.is_breached(Metrics(), 0, 60)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("m0 + 2 * m1", None),
        ("m0 - -1", 4.0),
        ("FILL(m1, 0) + m0", 3.0),
        ("SUM([m0, m1])", 3.0),
        ("SUM(METRICS())", 3.0),
        ("MAX([m0, 9])", 9.0),
        ("IF(m0 > 2, 1, 0)", 1.0),
        ("IF(m0 > 3, 1, 0)", 0.0),
        ("m0 / 0", 0.0),
    ],
)
def test_metric_math(tmp_path: Path, expression: str, value: float | None) -> None:
    (alarm,) = alarms(tmp_path, math(expression))
    metrics = Metrics()
    metrics.add("N", "One", {"service": "f"}, 1.0, 3.0)
    metrics.add("N", "One", {"service": "other"}, 1.0, 8.0)
    assert alarm.value(metrics, 0, 2) == value
    assert alarm.period_s == 300


@pytest.mark.parametrize("expression", ["SELECT SUM(x) FROM y", "RATE(m0)", "m7", "METRICS()", "[m0] + 1"])
def test_what_is_not_evaluated_is_named(tmp_path: Path, expression: str) -> None:
    (alarm,) = alarms(tmp_path, math(expression))
    with pytest.raises(UnreadAlarmError, match="alarm a0"):
        alarm.value(Metrics(), 0, 1)


def test_embedded_metrics_are_read_from_the_log(tmp_path: Path) -> None:
    (alarm,) = alarms(tmp_path, math("m0"))
    document = {
        "_aws": {
            "Timestamp": 5_000,
            "CloudWatchMetrics": [
                {
                    "Namespace": "N",
                    "Dimensions": [["service"]],
                    "Metrics": [{"Name": "One", "Unit": "Count"}, {"Name": "Two", "Unit": "Count"}],
                }
            ],
        },
        "service": "f",
        "One": [1.0, 2.0],
        "Two": 7,
    }
    metrics = Metrics()
    metrics.add_embedded("START RequestId: 1")
    metrics.add_embedded('it quotes "_aws" {')
    metrics.add_embedded(f"prefix {json.dumps(document)}")
    assert alarm.value(metrics, 4, 6) == 3.0
    assert alarm.value(metrics, 6, 9) is None
