"""The alarms of synthesized templates, evaluated on metrics that are recorded during a run."""

import json
import operator
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import time
from typing import Any, Final

from eventplane.values import quantile
from lab.background import Background
from lab.cloud import CloudEndpoint, function_logs
from lab.emulator import QueuedMessage, failed_invocations, queued_messages
from lab.errors import LocalError

MetricKey = tuple[str, str, frozenset[tuple[str, str]]]
"""Namespace, name and dimensions of a metric."""

AGE: Final = "ApproximateAgeOfOldestMessage"


class UnreadAlarmError(LocalError):
    """This module cannot evaluate the `part` of `alarm`."""

    def __init__(self, alarm: str, part: str) -> None:
        self.alarm, self.part = alarm, part
        super().__init__(f"alarm {alarm} has {part}, which is not evaluated; add it to lab/chaos/alarms.py")


class Metrics:
    """Values of metrics with the time of each, Unix seconds."""

    def __init__(self) -> None:
        self._values: dict[MetricKey, list[tuple[float, float]]] = defaultdict(list)
        self._is_sorted = True

    def add(self, namespace: str, name: str, dimensions: Mapping[str, str], at: float, value: float) -> None:
        """Record one value."""
        self._values[namespace, name, frozenset(dimensions.items())].append((at, value))
        self._is_sorted = False

    def add_embedded(self, line: str) -> None:
        """Record the metrics of a log line in CloudWatch's embedded metric format, if it is one."""
        start = line.find("{")
        if '"_aws"' not in line or start < 0:
            return
        try:
            document, _ = json.JSONDecoder().raw_decode(line[start:])
        except ValueError:
            return  # a line that quotes the format
        about = document["_aws"]
        for directive in about["CloudWatchMetrics"]:
            for dimensions in directive["Dimensions"]:
                found = {name: str(document[name]) for name in dimensions}
                for metric in directive["Metrics"]:
                    values = document[metric["Name"]]
                    at, namespace = about["Timestamp"] / 1_000, directive["Namespace"]
                    for value in values if isinstance(values, list) else [values]:
                        self.add(namespace, metric["Name"], found, at, float(value))

    def within(self, key: MetricKey, began: float, ended: float) -> list[float]:
        """Return the values of a metric from `began` to just before `ended`."""
        if not self._is_sorted:
            for values in self._values.values():
                values.sort()
            self._is_sorted = True
        found = self._values.get(key, [])
        return [value for _, value in found[bisect_left(found, (began,)) : bisect_left(found, (ended,))]]


@dataclass(frozen=True, slots=True)
class AlarmTerm:
    """One metric of an alarm, or an expression over others."""

    id: str
    key: MetricKey | None = None
    statistic: str = ""
    expression: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm by its template. The value is that of the term called `returned`; `period_s` is its period."""

    name: str
    terms: Mapping[str, AlarmTerm]
    returned: str
    comparison: str
    threshold: float
    missing: str
    period_s: float

    def value(self, metrics: Metrics, began: float, ended: float) -> float | None:
        """Return the alarm's value as if `began` to `ended` were one of its periods; None without data.

        Raises `UnreadAlarmError`.
        """
        return self._value(self.returned, metrics, began, ended)

    def is_breached(self, metrics: Metrics, began: float, ended: float) -> bool:
        """Return whether that value breaches the threshold; missing data may only after a whole period.

        Raises `UnreadAlarmError`.
        """
        value = self.value(metrics, began, ended)
        if value is None:
            return self.missing == "breaching" and ended - began >= self.period_s
        return _COMPARISONS[self.comparison](value, self.threshold)

    def rises(self, metrics: Metrics, began: float, ended: float) -> bool:
        """Return whether it watches only ages, which grew for most of that time."""
        keys = [each.key for each in self.terms.values() if each.key]
        if not keys or not all(key[1] == AGE for key in keys):
            return False
        quarter = (ended - began) / 4
        early = self.value(metrics, began, began + quarter) or 0.0
        late = self.value(metrics, ended - quarter, ended) or 0.0
        return late - early >= (ended - began) / 2

    def _value(self, id: str, metrics: Metrics, began: float, ended: float) -> float | None:
        term = self.terms[id]
        if term.key:
            values = metrics.within(term.key, began, ended)
            return _statistic(self.name, term.statistic, values) if values else None
        found = [self._part(each, metrics, began, ended) for each in term.expression.split(" + ")]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None

    def _part(self, part: str, metrics: Metrics, began: float, ended: float) -> float | None:
        """Return one summand of metric math, as the plane's alarms have them; None where it has no data."""
        if reduced := _REDUCED.fullmatch(part):
            series = (self._value(id, metrics, began, ended) for id, each in self.terms.items() if each.key)
            known = [each for each in series if each is not None]
            return _REDUCTIONS[reduced[1]](known) if known else None
        filled = _FILLED.fullmatch(part)
        if not filled or filled[1] not in self.terms:
            raise UnreadAlarmError(self.name, f"{part!r} in an expression")
        value = self._value(filled[1], metrics, began, ended)
        return float(filled[2]) if value is None else value


@dataclass(frozen=True, slots=True)
class Watched:
    """`alarms`, and the `metrics` that they watch."""

    alarms: Sequence[Alarm]
    metrics: Metrics


_FILLED: Final = re.compile(r"FILL\((\w+), ([-+.\de]+)\)")
_REDUCED: Final = re.compile(r"(MAX|SUM)\(METRICS\(\)\)")
_REDUCTIONS: Final[dict[str, Callable[[list[float]], float]]] = {"MAX": max, "SUM": sum}
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_STATISTICS: Final[dict[str, Callable[[list[float]], float]]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "Average": fmean,
    "SampleCount": len,
}


def _statistic(alarm: str, name: str, values: list[float]) -> float:
    if name in _STATISTICS:
        return _STATISTICS[name](values)
    if name.startswith("p"):
        return quantile(sorted(values), float(name[1:]) / 100)
    raise UnreadAlarmError(alarm, f"the statistic {name}")


def read_alarms(assembly: Path) -> list[Alarm]:
    """Return the alarms of all templates in a CDK `assembly`. Raises `UnreadAlarmError`."""
    return [
        _alarm(id, resource["Properties"])
        for template in sorted(assembly.glob("*.template.json"))
        for id, resource in json.loads(template.read_text())["Resources"].items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    ]


def _alarm(id: str, properties: Mapping[str, Any]) -> Alarm:
    name = str(properties.get("AlarmName", id))
    terms = {each.id: each for each in _terms(properties)}
    queries = properties.get("Metrics", [])
    returned = next((each["Id"] for each in queries if each.get("ReturnData", True)), "metric")
    periods = [each.get("Period") or each.get("MetricStat", {}).get("Period", 0) for each in queries]
    if properties["ComparisonOperator"] not in _COMPARISONS:
        raise UnreadAlarmError(name, f"the comparison {properties['ComparisonOperator']}")
    return Alarm(
        name=name,
        terms=terms,
        returned=returned,
        comparison=properties["ComparisonOperator"],
        threshold=float(properties["Threshold"]),
        missing=properties.get("TreatMissingData", "missing"),
        period_s=float(max([properties.get("Period", 0), *periods])),
    )


def _terms(properties: Mapping[str, Any]) -> Iterator[AlarmTerm]:
    if "Metrics" not in properties:
        statistic = properties.get("Statistic") or properties.get("ExtendedStatistic")
        yield AlarmTerm("metric", _key(properties), str(statistic))
    for query in properties.get("Metrics", []):
        if "Expression" in query:
            yield AlarmTerm(query["Id"], expression=query["Expression"])
        else:
            yield AlarmTerm(query["Id"], _key(query["MetricStat"]["Metric"]), query["MetricStat"]["Stat"])


def _key(metric: Mapping[str, Any]) -> MetricKey:
    dimensions = {each["Name"]: str(each["Value"]) for each in metric.get("Dimensions", [])}
    return metric["Namespace"], metric["MetricName"], frozenset(dimensions.items())


_SAMPLE_S: Final = 1.0

_POISON_RECEIVES: Final = 3
"""Receives from which the age of the oldest message leaves a message out (Amazon SQS guide)."""


class Observer(Background):
    """Records the metrics of `queues` by sampling, of functions by their logs and the `log` of `cloud`."""

    def __init__(self, cloud: CloudEndpoint, queues: Collection[str], log: Path) -> None:
        super().__init__("observer")
        self.metrics = Metrics()
        self._cloud = cloud
        self._queues = queues
        self._log = log
        self._known: defaultdict[str, set[str]] = defaultdict(set)

    def read_logs(self) -> None:
        """Add the metrics that the functions logged, their invocations and their failed batches."""
        for name, event in function_logs(self._cloud):
            self.metrics.add_embedded(event["message"])
            if event["message"].startswith("REPORT "):
                self._function(name, "Invocations", event["timestamp"] / 1_000)
        for at, function in failed_invocations(self._log):
            self._function(function, "Errors", at)

    def _function(self, name: str, metric: str, at: float) -> None:
        """Record 1 for the function, and for the account."""
        for dimensions in ({"FunctionName": name}, {}):
            self.metrics.add("AWS/Lambda", metric, dimensions, at, 1.0)

    def _run(self) -> None:
        while not self._ending.wait(_SAMPLE_S):
            now, found = time(), queued_messages(self._cloud)
            for queue in self._queues if found else ():
                self._sample(queue, found.get(queue, []), now)

    def _sample(self, queue: str, messages: list[QueuedMessage], now: float) -> None:
        visible = sum(each.is_visible for each in messages)
        fresh = {each.id for each in messages} - self._known[queue]
        self._known[queue] |= fresh
        ages = [now - each.sent_at for each in messages if each.receives < _POISON_RECEIVES]
        for metric, value in {
            "ApproximateNumberOfMessagesVisible": visible,
            "ApproximateNumberOfMessagesNotVisible": len(messages) - visible,
            "NumberOfMessagesSent": len(fresh),
            AGE: max([0.0, *ages]),
        }.items():
            self.metrics.add("AWS/SQS", metric, {"QueueName": queue}, now, value)
