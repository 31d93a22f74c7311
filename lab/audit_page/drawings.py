"""The drawings of the page as data for its template: the map of hours, the flow, and curves as SVG paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any, Final

from lab.audit_page.words import MEASURED, count, duration, moment, plain

HOUR_MS: Final = 3_600_000
MOST_DEVICES: Final = 40
"""Rows of the map, the worst devices first: what can be read on a phone."""

MOST_HOURS: Final = 72
"""Columns of hours; a longer window is drawn by day."""

MOST_TICKS: Final = 8
"""Columns or times that have a label: more do not fit beside each other."""

BANDS: Final = ("complete", "waiting", "unrecorded", "under 1 % lost", "under 10 % lost", "10 % lost or more")
"""What the colour of a cell means."""

COUNTS: Final = ("events", "lost", "late", "pending", "unrecorded")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One device in one hour or day: the band's place in `BANDS`, and what a reader is told."""

    from_ms: int
    band: int
    text: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The rows of the map by device; None is an hour without an event. `ticks` label left edges."""

    step_ms: int
    ticks: list[tuple[int, str]]
    columns: int
    rows: list[tuple[str, list[Cell | None]]]
    devices: int


def by_device(hours: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the sums of each device over all its hours and hops, the worst first."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in hours:
        sums[each["client_id"]].update({name: each[name] for name in COUNTS})
    rows = [{"client_id": name, **{key: total[key] for key in COUNTS}} for name, total in sums.items()]
    return sorted(rows, key=lambda row: (-row["lost"], -row["unrecorded"], -row["pending"], row["client_id"]))


def heat_map(hours: Sequence[Row]) -> HeatMap | None:
    """Return the map of a report's `hours`; None when there are none."""
    if not hours:
        return None
    first = min(each["from_ms"] for each in hours)
    last = max(each["from_ms"] for each in hours)
    step = HOUR_MS if last - first < MOST_HOURS * HOUR_MS else 24 * HOUR_MS
    first -= first % step
    columns = (last - first) // step + 1
    cells: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for each in hours:
        cells[each["client_id"], (each["from_ms"] - first) // step].update(
            {name: each[name] for name in COUNTS}
        )
    devices = [row["client_id"] for row in by_device(hours)]
    rows = [
        (name, [_cell(cells.get((name, place)), first + place * step) for place in range(columns)])
        for name in devices[:MOST_DEVICES]
    ]
    every = -(-columns // MOST_TICKS)
    ticks = [(place, _label(first + place * step, step)) for place in range(0, columns, every)]
    return HeatMap(step, ticks, columns, rows, len(devices))


def _label(from_ms: int, step_ms: int) -> str:
    text = moment(from_ms)
    return text[11:16] if step_ms == HOUR_MS else text[5:10]


def _cell(counts: Counter[str] | None, from_ms: int) -> Cell | None:
    if counts is None or not any(counts.values()):
        return None
    lost, held = counts["lost"], counts["events"] + counts["lost"]
    if lost:
        band = 3 if lost * 100 < held else 4 if lost * 10 < held else 5
    else:
        band = 2 if counts["unrecorded"] else 1 if counts["pending"] else 0
    said = ", ".join(f"{count(counts[name])} {plain(name)}" for name in COUNTS if counts[name])
    return Cell(from_ms, band, f"{moment(from_ms)[:16]}: {said}")


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the flow: a device, a route or an inbox, as high as the events that pass."""

    name: str
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Ribbon:
    """A stream from box to box as an SVG path, `width` thick; `is_lost` colours it."""

    path: str
    width: float
    is_lost: bool
    text: str


@dataclass(frozen=True, slots=True)
class DrawnFlow:
    """The drawing of where events went: boxes, ribbons, its height in units of its view box."""

    nodes: list[Node]
    ribbons: list[Ribbon]
    height: float


Box = tuple[int, str]
"""A box's column and its name."""

FLOW_X: Final = (0, 330, 660)
FLOW_WIDTH: Final = 960
_BOX: Final = 9
_LEAST: Final = 2.0


def flow(rows: Sequence[Row]) -> DrawnFlow | None:
    """Return device -> route -> inbox; the thickness grows with the logarithm: one lost event can be seen.

    A row without a device is about all together. What devices with a name lost there starts at their boxes.
    """
    links = _links(rows)
    if not links:
        return None
    width = {link: _LEAST + 3 * log10(1 + number) for link, number in links.items()}
    boxes: dict[Box, Node] = {}
    depths = [0.0, 0.0, 0.0]
    for box in sorted({end for one, other, _ in links for end in (one, other)}):
        sides = [sum(width[link] for link in links if link[side] == box) for side in (0, 1)]
        height = max(*sides, 14.0)
        boxes[box] = Node(box[1], FLOW_X[box[0]], depths[box[0]], height)
        depths[box[0]] += height + 12
    used: defaultdict[tuple[Box, int], float] = defaultdict(float)
    ribbons = []
    for link in sorted(links, key=lambda each: (each[2], each[0], each[1])):
        one, other, is_lost = link
        ends = []
        for side, box in enumerate((one, other)):
            ends.append(boxes[box].y + used[box, side] + width[link] / 2)
            used[box, side] += width[link]
        x, to = boxes[one].x + _BOX, boxes[other].x
        middle = (x + to) / 2
        path = f"M{x} {ends[0]:.1f}C{middle} {ends[0]:.1f} {middle} {ends[1]:.1f} {to} {ends[1]:.1f}"
        word = "lost, unrecorded or dead-lettered" if is_lost else "in the inbox or without a route"
        ribbons.append(
            Ribbon(path, width[link], is_lost, f"{one[1]} → {other[1]}: {count(links[link])} {word}")
        )
    return DrawnFlow(list(boxes.values()), ribbons, max(depths))


def _links(rows: Sequence[Row]) -> Counter[tuple[Box, Box, bool]]:
    named: Counter[str | None] = Counter()
    for row in rows:
        if row["device"]:
            named[row["route"]] += row["lost"]
    links: Counter[tuple[Box, Box, bool]] = Counter()
    for row in rows:
        good = (row.get("delivered") or 0) + row.get("unrouted", 0) + row.get("internal", 0)
        bad = sum(row.get(name, 0) for name in ("lost", "unrecorded", "not_understood", "dead_lettered"))
        if not row["device"]:
            bad = max(0, bad - named[row["route"]])
        links.update({(*ends, False): good for ends in _ends(row)})
        links.update({(*ends, True): bad for ends in _ends(row)})
    return +links


def _ends(row: Row) -> list[tuple[Box, Box]]:
    device = (0, row["device"] or "all devices")
    if not row["route"]:
        # What never reached a route ends at the hop that lost it.
        return [(device, (1, f"lost: {plain(row['hop'])}"))]
    route, inbox = (1, row["route"]), (2, row["inbox"] or "no inbox")
    return [(device, route), (route, inbox)]


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of events that took at most so long, as an SVG path in a box of 100 by 100."""

    priority: str
    path: str
    points: list[tuple[float, float, str]]


@dataclass(frozen=True, slots=True)
class Latency:
    """One hop: its curves by priority, and the `ticks` of its logarithmic axis (place in per cent, label).

    `measured` says from where to where.
    """

    hop: str
    measured: str
    curves: list[Curve]
    ticks: list[tuple[float, str]]


_QUANTILES: Final = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
_LEAST_MS: Final = 1.0


def latencies(latency: Sequence[Row]) -> list[Latency]:
    """Return the curves of each hop. Times under 1 ms, also negative ones, are drawn at 1 ms."""
    found = []
    for hop in dict.fromkeys(each["hop"] for each in latency):
        rows = [each for each in latency if each["hop"] == hop and each["samples"]]
        most = max((each["max_ms"] for each in rows), default=0)
        decades = max(1, -int(-log10(max(most, 10))))
        decades += 10**decades < most
        curves = [_curve(each, decades) for each in rows]
        ticks = [(100 * place / decades, duration(10**place)) for place in range(decades + 1)]
        if curves:
            found.append(Latency(plain(hop), MEASURED.get(hop, ""), curves, ticks))
    return found


def _curve(row: Row, decades: int) -> Curve:
    points = [
        (
            100 * log10(max(row[name], _LEAST_MS)) / decades,
            100.0 - part,
            f"{part} % within {duration(row[name])}",
        )
        for name, part in _QUANTILES.items()
    ]
    # No event was faster than 1 ms and none slower than the last: from 0 % up, a step at each quantile.
    path = f"M{points[0][0]:.1f} 100" + "".join(f"H{x:.1f}V{y:.1f}" for x, y, _ in points) + "H100"
    return Curve(row["priority"] or "none", path, points)
