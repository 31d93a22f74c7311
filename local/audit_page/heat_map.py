"""Completeness by device and hour: of what a device had in an hour, the share that was not lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import plotly.graph_objects as go

MOST_DEVICES: Final = 40
"""Rows, the worst devices first: what can be read on a phone."""

MOST_HOURS: Final = 72
"""Columns of hours; a longer window is drawn by day."""

BANDS: Final = (
    ("complete", "#d3e9da"),
    ("pending", "#b9d0ef"),
    ("under 1 % lost", "#f8d48a"),
    ("under 10 % lost", "#ec8a45"),
    ("10 % lost or more", "#a51d1d"),
)
"""What a cell's colour says; the darker, the worse, so that they differ without colours as well."""

MOST_TICKS: Final = 4
"""Columns that are named: more do not fit beside each other on a phone."""

_FORMAT: Final = "%Y-%m-%dT%H"
_COUNTS: Final = ("events", "lost", "late", "pending")
_LABEL: Final = 13
"""Characters of a device's name beside the map: a phone has 390 pixels."""


@dataclass(slots=True)
class Cell:
    """What is known of a device in one hour or day."""

    events: int = 0
    lost: int = 0
    late: int = 0
    pending: int = 0

    @property
    def completeness(self) -> float | None:
        """1 - lost / (events + lost); None where there was nothing."""
        held = self.events + self.lost
        return None if held == 0 else 1 - self.lost / held

    @property
    def band(self) -> int | None:
        """Its place in `BANDS`; None where there is nothing to say."""
        share = self.completeness
        if share is None:
            return 1 if self.pending else None
        if self.lost:
            return 2 if share > 0.99 else 3 if share > 0.9 else 4
        return 1 if self.pending else 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The `figure`, whether a column is an `hour` or a day, and how many `devices` are known and `shown`."""

    figure: go.Figure
    column: str
    devices: int
    shown: int


def heat_map(hours: Sequence[Mapping[str, Any]]) -> HeatMap | None:
    """The map of a report's `hours`; None when there are none."""
    if not hours:
        return None
    first, last = (pick(_time(each["from_ms"]) for each in hours) for pick in (min, max))
    by_hour = (last - first) < timedelta(hours=MOST_HOURS)
    step, digits = (timedelta(hours=1), 13) if by_hour else (timedelta(days=1), 10)
    cells: defaultdict[tuple[str, str], Cell] = defaultdict(Cell)
    lost: defaultdict[str, int] = defaultdict(int)
    for each in hours:
        cell = cells[each["client_id"], f"{_time(each['from_ms']):{_FORMAT}}"[:digits]]
        for name in _COUNTS:
            setattr(cell, name, getattr(cell, name) + each[name])
        lost[each["client_id"]] += each["lost"]
    devices = sorted(lost, key=lambda name: (-lost[name], name))
    shown = devices[:MOST_DEVICES]
    columns = _columns(first, last, step, digits)
    figure = _figure(shown, columns, cells)
    return HeatMap(figure, "hour" if by_hour else "day", len(devices), len(shown))


def _figure(
    devices: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], Cell]
) -> go.Figure:
    grid = [[cells.get((device, column), Cell()) for column in columns] for device in devices]
    steps = [[place / len(BANDS), colour] for n, (_, colour) in enumerate(BANDS) for place in (n, n + 1)]
    figure = go.Figure(
        go.Heatmap(
            x=list(columns),
            y=list(devices),
            z=[[cell.band for cell in row] for row in grid],
            text=[[_told(cell) for cell in row] for row in grid],
            colorscale=steps,
            zmin=-0.5,
            zmax=len(BANDS) - 0.5,
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="<b>%{y}</b>, %{x}<br>%{text}<extra></extra>",
            hoverongaps=False,
        )
    )
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        tickvals=list(devices),
        ticktext=[_short(each) for each in devices],
    )
    figure.update_xaxes(
        type="category",
        side="top",
        ticklabelposition="outside right",
        tickangle=0,
        tickvals=_ticks(columns),
        ticktext=[_tick(each) for each in _ticks(columns)],
    )
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    figure.update_layout(height=56 + 18 * max(len(devices), 2))
    return figure


def _told(cell: Cell) -> str:
    share = cell.completeness
    # Rounded down: what lacks one event is not 100 %.
    head = "nothing came" if share is None else f"{int(share * 10_000) / 100:g} % complete"
    told = [f"{getattr(cell, name):,} {name}" for name in _COUNTS if getattr(cell, name)]
    return "<br>".join([head, *told])


def _columns(first: datetime, last: datetime, step: timedelta, digits: int) -> list[str]:
    first = first if digits == 13 else first.replace(hour=0)
    return [(first + n * step).strftime(_FORMAT)[:digits] for n in range((last - first) // step + 1)]


def _ticks(columns: Sequence[str]) -> Sequence[str]:
    return columns[:: max(1, -(-len(columns) // MOST_TICKS))]


def _tick(column: str) -> str:
    day = f"{column[8:10]}.{column[5:7]}."
    return day if len(column) == 10 else f"{column[11:]}:00<br>{day}"


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


def _short(name: str) -> str:
    return name if len(name) <= _LABEL else f"{name[:5]}…{name[-(_LABEL - 6) :]}"
