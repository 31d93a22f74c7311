"""The page's other plots: what was lost at which hop, how long events took, what came twice, dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from local.audit_page.words import HOPS, count, duration, plain

BAD: Final = "#a51d1d"
NEUTRAL: Final = "#5b6675"
PRIORITIES: Final = {"urgent": "#a51d1d", "normal": "#1f5fa8", "low": "#7d8794"}
PLACES: Final = {"device": "#b06a10", "cloud": "#1f5fa8"}

_QUANTILES: Final = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
_TICKS_MS: Final = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)
_MOST_TICKS: Final = 5
"""Times that are named on an axis: more do not fit beside each other on a phone."""

_BAR: Final = 34
"""Pixels that a bar takes, with the space around it."""


def waterfall(lost_by_hop: Mapping[str, int]) -> go.Figure | None:
    """What each hop lost, and the sum; None when nothing is lost."""
    if not any(lost_by_hop.values()):
        return None
    hops = [hop for hop in HOPS if hop in lost_by_hop]
    figure = go.Figure(
        go.Waterfall(
            x=[*(plain(hop).replace(" to ", "<br>to ") for hop in hops), "in all"],
            y=[*(lost_by_hop[hop] for hop in hops), 0],
            measure=[*("relative" for _ in hops), "total"],
            text=[*(count(lost_by_hop[hop]) for hop in hops), count(sum(lost_by_hop.values()))],
            textposition="outside",
            cliponaxis=False,
            customdata=[*hops, ""],
            increasing={"marker": {"color": BAD}},
            totals={"marker": {"color": NEUTRAL}},
            connector={"line": {"color": NEUTRAL, "width": 1}},
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(rangemode="tozero", visible=False)
    figure.update_layout(height=260, margin={"t": 26}, showlegend=False)
    return figure


def latency_curves(latency: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """The share of events by what they took at most: a row for each hop, a colour for each priority.

    A logarithmic axis has no place for what is not positive; a device's clock that is ahead makes such.
    """
    curves = [
        (each, points)
        for each in latency
        if (points := [(each[name], share) for name, share in _QUANTILES.items() if (each[name] or 0) > 0])
    ]
    hops = list(dict.fromkeys(each["hop"] for each, _ in curves))
    if not hops:
        return None
    figure = make_subplots(
        rows=len(hops),
        shared_xaxes=True,
        vertical_spacing=0.28 / len(hops),
        subplot_titles=[plain(hop) for hop in hops],
    )
    named: set[str] = set()
    for each, points in curves:
        priority = each["priority"]
        figure.add_scatter(
            x=[took_ms for took_ms, _ in points],
            y=[share for _, share in points],
            text=[duration(took_ms) for took_ms, _ in points],
            mode="lines+markers",
            line={"color": PRIORITIES.get(priority, NEUTRAL), "shape": "hv"},
            name=priority,
            legendgroup=priority,
            showlegend=priority not in named,
            hovertemplate=f"{priority}: %{{y}} % within %{{text}}<extra></extra>",
            row=hops.index(each["hop"]) + 1,
            col=1,
        )
        named.add(priority)
    ticks = _ticks([took_ms for _, points in curves for took_ms, _ in points])
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[duration(each) for each in ticks], tickangle=0)
    figure.update_yaxes(range=[45, 103], tickvals=[50, 75, 95], ticktext=["50 %", "75 %", "95 %"])
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    legend = {"orientation": "h", "x": 0, "y": -40 / (130 * len(hops)), "yanchor": "top"}
    figure.update_layout(height=90 + 130 * len(hops), margin={"t": 26}, legend=legend)
    return figure


def _ticks(took_ms: Sequence[float]) -> Sequence[int]:
    """Round times around those that were taken, few enough to be read."""
    least, most = min(took_ms), max(took_ms)
    near = [each for each in _TICKS_MS if least / 10 <= each <= most * 10]
    return near[:: max(1, -(-len(near) // _MOST_TICKS))]


def duplicates(report: Mapping[str, Any]) -> go.Figure | None:
    """Copies beyond the first: sent again by devices, put into inboxes, handed over; None without any.

    The `customdata` of a bar is the hop and the route, or the inbox, that it counts.
    """
    bars = [("sent again by devices", report["totals"]["tap_copies"], "device_cloud", "")]
    bars += [
        (f"in the inbox, {each['route']}", each["duplicated"], "router", each["route"])
        for each in report["routes"]
    ]
    handed_over: dict[str, int] = {}
    for each in report.get("consumers", ()):
        handed_over[each["channel"]] = handed_over.get(each["channel"], 0) + each["duplicated"]
    bars += [(f"handed over, {name}", number, "inbox_consumer", "") for name, number in handed_over.items()]
    bars = sorted((each for each in bars if each[1]), key=lambda each: -each[1])
    if not bars:
        return None
    return _bars(
        [each[0] for each in bars],
        [each[1] for each in bars],
        [NEUTRAL] * len(bars),
        [[each[2], each[3]] for each in bars],
    )


def dead_letters(letters: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Dead letters by reason, coloured by where they were made; the `customdata` of a bar is its reason."""
    rows = sorted((each for each in letters if each["count"]), key=lambda each: -each["count"])
    if not rows:
        return None
    return _bars(
        [f"{plain(each['reason'] or 'no reason')} ({each['place']})" for each in rows],
        [each["count"] for each in rows],
        [PLACES.get(each["place"], NEUTRAL) for each in rows],
        [each["reason"] for each in rows],
    )


def _bars(
    names: Sequence[str], values: Sequence[int], colours: Sequence[str], drill: Sequence[Any]
) -> go.Figure:
    """Bars with their name above each, so that no long name takes the width of a phone."""
    places = list(range(len(names)))
    figure = go.Figure(
        go.Bar(
            x=list(values),
            y=places,
            orientation="h",
            width=0.36,
            offset=0.02,
            marker={"color": list(colours)},
            text=[count(each) for each in values],
            textposition="outside",
            cliponaxis=False,
            customdata=list(drill),
            hoverinfo="skip",
        )
    )
    for place, name in zip(places, names, strict=True):
        figure.add_annotation(
            x=0, y=place - 0.22, xref="x", text=name, showarrow=False, xanchor="left", font={"size": 13}
        )
    figure.update_yaxes(visible=False, range=[len(names) - 0.45, -0.55])
    figure.update_xaxes(visible=False, range=[0, max(values) * 1.18])
    figure.update_layout(height=8 + round(1.35 * _BAR) * len(names), margin={"t": 0, "b": 0})
    return figure
