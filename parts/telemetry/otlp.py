"""The forwarder's page of metrics as a request of OTLP over HTTP, in JSON. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from edge.parts import PROGRAM

_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

_CUMULATIVE: Final = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE."""


def metrics_request(page: str, thing: str, version: str, now_ns: int) -> dict[str, Any]:
    """Return the ExportMetricsServiceRequest of a `page` in Prometheus' text format 0.0.4.

    Counters become cumulative sums, everything else gauges; what is no finite number is left out.
    """
    metrics: dict[str, dict[str, Any]] = {}
    points: list[dict[str, Any]] = []
    # Not by lines of Unicode: a label may have such a character.
    for line in page.split("\n"):
        match line.split(" ", 3):
            case ["#", "HELP", name, text]:
                metrics[name] = {"name": name, "description": _plain(text)}
            case ["#", "TYPE", name, kind]:
                points = []
                data = {"dataPoints": points}
                sums = {"sum": data | {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
                metrics.setdefault(name, {"name": name}).update(
                    sums if kind == "counter" else {"gauge": data}
                )
            case _ if sample := _SAMPLE.fullmatch(line):
                points += _point(sample[2] or "", sample[3], now_ns)
    resource = {"service.name": PROGRAM, "service.instance.id": thing, "service.version": version}
    scope = {"scope": {"name": PROGRAM, "version": version}, "metrics": list(metrics.values())}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(resource)}, "scopeMetrics": [scope]}]}


def _point(labels: str, value: str, now_ns: int) -> list[dict[str, Any]]:
    number = float(value)
    if not math.isfinite(number):
        return []
    # A whole number of 64 bits is a text in the JSON of protobuf.
    told: dict[str, Any] = {"asInt": value} if re.fullmatch(r"-?\d{1,18}", value) else {"asDouble": number}
    named = {name: _plain(text) for name, text in _LABEL.findall(labels)}
    return [{"attributes": _attributes(named), "timeUnixNano": str(now_ns), **told}]


def _attributes(named: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": text}} for name, text in named.items()]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
