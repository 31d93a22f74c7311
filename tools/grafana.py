"""How Grafana writes a dashboard down: rows of panels, each with its queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

_SCHEMA: Final = 39
"""Of Grafana 11; later ones read it too."""

_WIDTH: Final = 24
"""Of Grafana's grid."""

_HEIGHT: Final = 7


class Query(NamedTuple):
    """PromQL in which `$i` stands for the chosen devices, and what its lines are called."""

    promql: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    """One graph: the `unit` is Grafana's word for it."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"


class Row(NamedTuple):
    """A heading and the panels below it, side by side."""

    title: str
    panels: tuple[Panel, ...]


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
