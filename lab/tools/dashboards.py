"""Write docs/dashboards/device.json, Grafana's dashboard of a device's metrics; `--check` only compares.

`ROWS` declares the panels, in the order in which an operator asks. A metric that is in none of them gets a
panel of its own in a last row: a new metric is on the dashboard as soon as it is declared.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

_SCHEMA: Final = 39
"""Of Grafana 11; later ones read it too."""

_WIDTH: Final = 24
"""Of Grafana's grid."""

_HEIGHT: Final = 7


class Query(NamedTuple):
    """PromQL in which `$i` stands for the chosen devices, and what its lines are called."""

    promql: str
    legend: str


class Panel:
    """One graph of `queries`: the `unit` is Grafana's word for it."""

    def __init__(self, title: str, unit: str, *queries: Query, kind: str = "timeseries") -> None:
        self.title, self.unit, self.queries, self.kind = title, unit, queries, kind


class Row:
    """A heading and the panels below it, side by side."""

    def __init__(self, title: str, *panels: Panel) -> None:
        self.title, self.panels = title, panels


def dashboard(uid: str, title: str, rows: Sequence[Row]) -> str:
    """The dashboard of `rows`, as Grafana imports it."""
    document = {
        "uid": uid,
        "title": title,
        "tags": ["eventplane"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_DATASOURCE, _INSTANCES]},
        "panels": list(_panels(rows)),
    }
    return json.dumps(document, indent=1) + "\n"


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_DATASOURCE: Final = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
}
_INSTANCES: Final = {
    "name": "instance",
    "label": "Device",
    "type": "query",
    "datasource": _SOURCE,
    "query": {"query": "label_values(eventplane_info, instance)", "refId": "instances"},
    "includeAll": True,
    "multi": True,
    "allValue": ".*",
    "refresh": 2,
}


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    ids, top = count(1), 0
    for row in rows:
        yield {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "gridPos": _place(0, top, _WIDTH, 1),
            "panels": [],
        }
        width = _WIDTH // len(row.panels)
        for at, panel in enumerate(row.panels):
            yield _panel(next(ids), panel, _place(at * width, top + 1, width, _HEIGHT))
        top += 1 + _HEIGHT


def _panel(id: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": id,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": each.promql.replace("$i", 'instance=~"$instance"'),
                "legendFormat": each.legend,
            }
            for at, each in enumerate(panel.queries)
        ],
    }


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from edge.metrics import METRICS, Metric  # noqa: E402 - after the path it needs

FILE = ROOT / "docs" / "dashboards" / "device.json"


def _query(promql: str, what: str = "") -> Query:
    """A query whose lines are called like the device, and `what` they show."""
    return Query(promql, f"{{{{instance}}}} {what}".rstrip())


def _rate(metric: str, what: str = "") -> Query:
    return _query(f"rate({metric}{{$i}}[$__rate_interval])", what)


def _now(metric: str, what: str = "") -> Query:
    return _query(f"{metric}{{$i}}", what)


_WAITING: Final = "max by (instance, destination, priority) (eventplane_oldest_seconds{$i}) > 0"
_PENDING: Final = "sum by (instance, destination) (eventplane_pending{$i})"
_ACKNOWLEDGED: Final = (
    "rate(eventplane_acknowledge_seconds_total{$i}[$__rate_interval])"
    " / rate(eventplane_acknowledged_total{$i}[$__rate_interval])"
)

ROWS: Final = (
    Row(
        "Is it well?",
        Panel("What is wrong", "none", _now("eventplane_problem", "{{problem}} ({{health}})")),
        Panel("Connections to the brokers", "none", _now("eventplane_link_up", "{{link}}")),
        Panel("Connected for", "s", _now("eventplane_link_up_seconds", "{{link}}")),
        Panel("Device", "none", _now("eventplane_info", "{{thing}} {{contract}}"), kind="stat"),
    ),
    Row(
        "Does everything flow?",
        Panel("Oldest pending event", "s", _query(_WAITING, "{{destination}} {{priority}}")),
        Panel("Pending deliveries", "short", _query(_PENDING, "{{destination}}")),
        Panel(
            "Events in, and up to the cloud",
            "cps",
            _rate("eventplane_stored_total", "stored"),
            _rate("eventplane_published_events_total", "published"),
            _rate("eventplane_downlink_total", "down: {{outcome}}"),
        ),
    ),
    Row(
        "What did not arrive?",
        Panel(
            "Refused and sent from memory",
            "cps",
            _rate("eventplane_refused_total", "refused"),
            _rate("eventplane_received_dropped_total", "{{link}} dropped"),
            _rate("eventplane_sent_unstored_total", "sent from memory"),
        ),
        Panel("Dead letters", "cps", _rate("eventplane_dead_letters_total", "{{reason}}")),
        Panel(
            "Expired, dropped and unwanted",
            "cps",
            _rate("eventplane_discards_total", "{{outcome}} {{reason}}"),
            _rate("eventplane_unwanted_total", "unwanted"),
        ),
    ),
    Row(
        "The connection to the cloud",
        Panel("Publish to acknowledgement, mean", "s", _query(_ACKNOWLEDGED)),
        Panel(
            "Publishes",
            "cps",
            _rate("eventplane_publishes_total", "sent"),
            _rate("eventplane_slowdowns_total", "slowed down"),
            _now("eventplane_in_flight", "in flight"),
        ),
        Panel("Payload", "Bps", _rate("eventplane_published_bytes_total")),
        Panel("Left of the day's budget", "bytes", _now("eventplane_data_budget_left_bytes")),
        Panel("Received and not yet taken", "bytes", _now("eventplane_received_waiting_bytes", "{{link}}")),
        Panel("Pauses of reading", "cps", _rate("eventplane_reading_paused_total", "{{link}}")),
        Panel("Connections made", "short", _query("increase(eventplane_connects_total{$i}[1h])", "{{link}}")),
    ),
    Row(
        "The store",
        Panel("On its disk", "none", _now("eventplane_spool_on_disk")),
        Panel("Pressure", "percentunit", _now("eventplane_spool_pressure")),
        Panel(
            "Room",
            "bytes",
            _now("eventplane_spool_used_bytes", "used"),
            _now("eventplane_spool_capacity_bytes", "capacity"),
            _now("eventplane_disk_free_bytes", "free on the disk"),
        ),
        Panel("Capacity in deliveries", "short", _now("eventplane_spool_capacity_deliveries")),
        Panel("Written to flash", "Bps", _rate("eventplane_spool_written_bytes_total")),
    ),
    Row(
        "The process",
        Panel("Memory", "bytes", _now("process_resident_memory_bytes")),
        Panel("CPU", "percentunit", _rate("process_cpu_seconds_total")),
        Panel("Uptime", "s", _now("eventplane_uptime_seconds")),
        Panel(
            "Contracts accepted and refused",
            "short",
            _now("eventplane_reloads_total", "accepted"),
            _now("eventplane_reloads_refused_total", "refused"),
        ),
        Panel("Certificate expires in", "s", _now("eventplane_certificate_left_seconds")),
    ),
)


def rows(metrics: Sequence[Metric] = METRICS) -> tuple[Row, ...]:
    """Return `ROWS`, and one with the other `metrics` if there are any."""
    queries = " ".join(query.promql for row in ROWS for panel in row.panels for query in panel.queries)
    others = [each for each in metrics if not re.search(rf"\b{each.name}\b", queries)]
    panels = [
        Panel(each.name, "short", _rate(each.name) if each.kind == "counter" else _now(each.name))
        for each in others
    ]
    return (*ROWS, Row("Others", *panels)) if panels else ROWS


def device_dashboard() -> str:
    """Return the content of FILE."""
    return dashboard("eventplane-devices", "Event Plane: devices", rows())


def main() -> int:
    """Return 1 if `--check` finds the file out of date."""
    text = device_dashboard()
    if "--check" in sys.argv[1:]:
        if not FILE.exists() or FILE.read_text() != text:
            print(f"{FILE.relative_to(ROOT)} is out of date; run `make tables`")
            return 1
        return 0
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
