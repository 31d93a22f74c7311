"""Alarms of templates are read and evaluated as CloudWatch does; what is not evaluated is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.alarms import Alarm, Metrics, UnreadAlarmError, read_alarms


def alarm(folder: Path, *metrics: dict[str, Any], **properties: Any) -> Alarm:
    """Read the alarm on `metrics` from a template."""
    known = {"AlarmName": "a", "Threshold": 7, "ComparisonOperator": "GreaterThanThreshold"}
    each = {"Type": "AWS::CloudWatch::Alarm", "Properties": {**known, "Metrics": metrics, **properties}}
    resources = {"Alarm": each, "Other": {"Type": "AWS::SQS::Queue", "Properties": {}}}
    (folder / "monitoring.template.json").write_text(json.dumps({"Resources": resources}))
    (read,) = read_alarms(folder)
    return read


def stat(id: str, name: str, statistic: str = "Sum") -> dict[str, Any]:
    dimensions = [{"Name": "service", "Value": "f"}]
    metric = {"Namespace": "N", "MetricName": name, "Dimensions": dimensions}
    return {"Id": id, "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic}}


def math(folder: Path, expression: str) -> Alarm:
    whole = {"Id": "whole", "Expression": expression}
    return alarm(folder, whole, *({**stat(f"m{at}", f"M{at}"), "ReturnData": False} for at in (0, 1)))


def recorded(*values: float) -> Metrics:
    metrics = Metrics()
    for at, value in enumerate(values):
        metrics.add("N", "M0", {"service": "f"}, at, value)
        metrics.add("N", "M0", {"service": "other"}, at, 8.0)
    return metrics


@pytest.mark.parametrize(
    ("statistic", "value"), [("Sum", 7), ("Maximum", 4), ("Average", 7 / 3), ("SampleCount", 3), ("p50", 2)]
)
def test_a_statistic_is_taken_of_the_period(tmp_path: Path, statistic: str, value: float) -> None:
    read = alarm(tmp_path, stat("m0", "M0", statistic))
    assert read.value(recorded(1, 4, 2), 0, 3) == pytest.approx(value)
    assert read.value(recorded(1, 4, 2), 3, 9) is None


@pytest.mark.parametrize(
    ("comparison", "is_breached"),
    [
        ("GreaterThanThreshold", False), ("GreaterThanOrEqualToThreshold", True),
        ("LessThanThreshold", False), ("LessThanOrEqualToThreshold", True),
    ],
)  # fmt: skip
def test_thresholds_are_compared(tmp_path: Path, comparison: str, *, is_breached: bool) -> None:
    read = alarm(tmp_path, stat("m0", "M0"), ComparisonOperator=comparison, TreatMissingData="breaching")
    assert read.is_breached(recorded(1, 4, 2), 0, 3) is is_breached
    # Missing data breaches over a whole period.
    assert [read.is_breached(Metrics(), 0, seconds) for seconds in (59, 60)] == [False, True]


@pytest.mark.parametrize(
    ("expression", "value"),
    [("FILL(m0, -1)", 3), ("FILL(m1, -1)", -1), ("FILL(m0, 0) + FILL(m1, 2)", 5), ("SUM(METRICS())", 3)],
)
def test_metric_math(tmp_path: Path, expression: str, value: float) -> None:
    assert math(tmp_path, expression).value(recorded(3), 0, 2) == value


def test_metric_math_without_data(tmp_path: Path) -> None:
    assert math(tmp_path, "MAX(METRICS())").value(Metrics(), 0, 2) is None


@pytest.mark.parametrize("expression", ["SELECT SUM(x) FROM y", "RATE(m0)", "FILL(m7, 0)", "METRICS()"])
def test_what_is_not_evaluated_is_named(tmp_path: Path, expression: str) -> None:
    with pytest.raises(UnreadAlarmError, match="alarm a"):
        math(tmp_path, expression).value(Metrics(), 0, 1)


def test_embedded_metrics_are_read_from_the_log(tmp_path: Path) -> None:
    directive = {"Namespace": "N", "Dimensions": [["service"]], "Metrics": [{"Name": "M0"}, {"Name": "M1"}]}
    about = {"Timestamp": 5_000, "CloudWatchMetrics": [directive]}
    metrics = Metrics()
    for line in ("START RequestId: 1", 'it quotes "_aws" {'):
        metrics.add_embedded(line)
    metrics.add_embedded(f"prefix {json.dumps({'_aws': about, 'service': 'f', 'M0': [1.0, 2.0], 'M1': 7})}")
    read = alarm(tmp_path, stat("m0", "M0"))
    assert [read.value(metrics, at, 9) for at in (4, 6)] == [3.0, None]
