"""The page of a simulation: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from contract import pages
from parts.simulate import report
from parts.simulate.timeline import Note

LANE_PX: Final = 34
LEFT_PX: Final = 190
WIDTH_PX: Final = 1_400


def lanes(notes: Sequence[Note], starts_s: float = 0.0) -> str:
    """Return `notes` as an SVG, from `starts_s` up to the last of them."""
    names = list(dict.fromkeys(each.lane for each in notes))
    lasts_s = max((each.at_s - starts_s for each in notes), default=1.0) or 1.0
    height = LANE_PX * (len(names) + 1)
    marks = "".join(_mark(each, names.index(each.lane), (each.at_s - starts_s) / lasts_s) for each in notes)
    drawn = "".join(
        f'<line class="lane" x1="{LEFT_PX}" x2="{WIDTH_PX}" y1="{y}" y2="{y}"/>'
        f'<text class="name" x="4" y="{y + 4}">{escape(lane)}</text>'
        for y, lane in ((LANE_PX * (at + 1), lane) for at, lane in enumerate(names))
    )
    return (
        f'<svg viewBox="0 0 {WIDTH_PX} {height}" role="img" aria-label="What happened, by party and time">'
        f"{drawn}{marks}</svg>"
    )


def _mark(note: Note, lane: int, share: float) -> str:
    x = LEFT_PX + (WIDTH_PX - LEFT_PX - 8) * share
    kind, radius = ("fault", 6) if note.is_fault else ("mark", 4)
    text = escape(f"{note.at_s:.3f} s: {note.text}")
    place = f'cx="{x:.1f}" cy="{LANE_PX * (lane + 1)}" r="{radius}"'
    return f'<circle class="{kind}" {place}><title>{text}</title></circle>'


WIDTH: Final = 560
HEIGHT: Final = 180
LEFT: Final = 110
BOTTOM: Final = 24
TOP: Final = 10
LANES: Final = ("weather", "service", "forwarder", "IoT Core", "router", "reader")
"""The parties on an alarm's way, from above."""

LEAST_S: Final = 0.001
"""The shortest latency that a drawing tells apart."""


def page(found: Mapping[str, Any]) -> str:
    """Return the result of a simulation as HTML."""
    way = found["way"]
    notes = [Note(**each) for each in way["notes"]] if way else []
    said_s = next((each.at_s for each in notes if each.lane == "service"), 0.0)
    drawn = [Note(max(each.at_s, said_s), each.lane, each.text, each.is_fault) for each in notes]
    drawn.sort(key=lambda each: LANES.index(each.lane))
    return (
        pages.environment(Path(__file__).parent)
        .get_template("page.html.j2")
        .render(
            found=found,
            headline=report.headline(found),
            way=Markup(lanes(drawn, said_s)),  # noqa: S704 - it escapes what it is given
            said_s=said_s,
            plots=list(_plots(found)),
            cell=report.cell,
            ends=report.ends,
            seconds=report.seconds,
            outbox_columns=report.OUTBOX_COLUMNS,
            inbox_columns=report.INBOX_COLUMNS,
        )
    )


def _plots(found: Mapping[str, Any]) -> Iterable[tuple[str, Markup]]:
    """Yield title and drawing: what waits on a device, its spool, and how long events take to each inbox."""
    point_h = found["devices"]["point_h"]
    for row in found["outboxes"]:
        if max(row["curve"], default=0) > 1:
            title = f"Waiting on one device: {row['channel']} (measured)"
            yield title, _curve(title, row["curve"], point_h, "events")
    title = "Bytes of the fullest spool (measured)"
    yield title, _curve(title, found["devices"]["spool_curve"], point_h, "bytes")
    for row in found["inboxes"]:
        if row["shares"]:
            title = f"Seconds to {row['channel']}, by share of events (modelled)"
            yield title, _shares(title, row["shares"])


def _curve(title: str, values: Sequence[float], point_h: float, unit: str) -> Markup:
    """Return a plot of the most in each bucket of time."""
    most = max(values, default=0) or 1
    points = [(at / max(1, len(values) - 1), value / most) for at, value in enumerate(values)]
    hours = point_h * len(values)
    return _plot(title, points, [(0.0, "0"), (1.0, f"{most:,} {unit}")], ["0 h", f"{hours:,.0f} h"])


def _shares(title: str, values: Sequence[float]) -> Markup:
    """Return a plot of seconds, on a logarithmic scale, over the share of events that took no more."""
    logs = [log10(max(LEAST_S, each)) for each in values]
    low, high = min(logs), max(max(logs), min(logs) + 1)
    points = [(at / max(1, len(values) - 1), (each - low) / (high - low)) for at, each in enumerate(logs)]
    marks = [(0.0, report.seconds(10**low)), (1.0, report.seconds(10**high))]
    return _plot(title, points, marks, ["0 %", "100 %"])


def _plot(
    title: str,
    points: Sequence[tuple[float, float]],
    marks: Sequence[tuple[float, str]],
    ends: Sequence[str],
) -> Markup:
    """Return a line through `points`, shares of width and height, with `marks` beside it and `ends` below."""
    wide, high = WIDTH - LEFT - 10, HEIGHT - TOP - BOTTOM
    places = " ".join(f"{LEFT + x * wide:.1f},{TOP + (1 - y) * high:.1f}" for x, y in points)
    ground = TOP + high
    texts = "".join(
        f'<text x="{LEFT - 6}" y="{TOP + (1 - y) * high + 4:.1f}" text-anchor="end">{escape(each)}</text>'
        for y, each in marks
    )
    texts += f'<text x="{LEFT}" y="{HEIGHT - 6}">{escape(ends[0])}</text>'
    texts += f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end">{escape(ends[1])}</text>'
    return Markup(  # noqa: S704 - numbers, and texts that are escaped above
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{ground}" y2="{ground}"/>'
        f'<polygon class="under" points="{LEFT},{ground} {places} {WIDTH - 10},{ground}"/>'
        f'<polyline class="line" points="{places}"/>{texts}</svg>'
    )
