"""The page's plots: findings by device and hour, what was lost at which hop, how long events took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go

BROKEN: Final = ("lost", "misrouted", "unrouted_delivered", "reordered", "forged", "missing_manifest")
"""The kinds of findings that break a promise of the plane; `glue_jobs.delivery_audit.findings.BROKEN`."""

HOPS: Final = ("device_cloud", "router", "inbox_consumer")

MOST_DEVICES: Final = 30
"""Devices in the heat map, worst first: what can be read on a phone."""

_HOUR_MS: Final = 3_600_000
_QUANTILES: Final = {"p50_ms": "50 %", "p95_ms": "95 %", "p99_ms": "99 %", "max_ms": "all"}
_MARGIN: Final = {"l": 8, "r": 8, "t": 8, "b": 8}


def heat_map(findings: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Broken promises by device and hour; None where there is none that has a device and a time."""
    cells = Counter(
        (str(each["device"]), each["at_ms"] // _HOUR_MS)
        for each in findings
        if each["kind"] in BROKEN and each["device"] and each["at_ms"] is not None
    )
    if not cells:
        return None
    by_device: Counter[str] = Counter()
    for (device, _), count in cells.items():
        by_device[device] += count
    devices = [name for name, _ in by_device.most_common(MOST_DEVICES)]
    first, last = min(hour for _, hour in cells), max(hour for _, hour in cells)
    hours = list(range(first, last + 1)) if last - first < 31 * 24 else sorted({hour for _, hour in cells})
    figure = go.Figure(
        go.Heatmap(
            x=[_hour(each) for each in hours],
            y=devices,
            z=[[cells[device, hour] for hour in hours] for device in devices],
            colorscale=[[0, "#187a3f"], [0.001, "#f6c344"], [1, "#b3261e"]],
            zmin=0,
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="%{y}<br>%{x}: %{z}<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", automargin=True)
    figure.update_xaxes(type="category", nticks=8, automargin=True)
    figure.update_layout(height=120 + 22 * len(devices), margin=_MARGIN)
    return figure


def waterfall(lost_by_hop: Mapping[str, int]) -> go.Figure:
    """What each hop lost, and the sum."""
    figure = go.Figure(
        go.Waterfall(
            x=[*HOPS, "lost in all"],
            y=[*(lost_by_hop[hop] for hop in HOPS), 0],
            measure=[*("relative" for _ in HOPS), "total"],
            text=[*(f"{lost_by_hop[hop]:,}" for hop in HOPS), f"{sum(lost_by_hop.values()):,}"],
            increasing={"marker": {"color": "#b3261e"}},
            totals={"marker": {"color": "#6b6b6b"}},
            hoverinfo="x+text",
        )
    )
    figure.update_yaxes(rangemode="tozero", automargin=True)
    figure.update_layout(height=300, margin=_MARGIN)
    return figure


def latency_curves(latency: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """The share of events by the milliseconds they took at most, for each hop and priority.

    A logarithmic axis has no place for what is not positive; a device's clock that is ahead makes such.
    """
    figure = go.Figure()
    for each in latency:
        points = [(each[name], share) for name, share in _QUANTILES.items() if each[name] and each[name] > 0]
        if points:
            figure.add_scatter(
                x=[took_ms for took_ms, _ in points],
                y=[share for _, share in points],
                mode="lines+markers",
                name=f"{each['hop']} {each['priority']}",
            )
    if not figure.data:
        return None
    figure.update_xaxes(type="log", title="milliseconds", automargin=True)
    figure.update_yaxes(type="category", categoryarray=list(_QUANTILES.values()), automargin=True)
    figure.update_layout(height=360, margin=_MARGIN, legend={"orientation": "h", "y": -0.3})
    return figure


def _hour(number: int) -> str:
    return datetime.fromtimestamp(number * _HOUR_MS / 1_000, UTC).strftime("%Y-%m-%d %H:00")
