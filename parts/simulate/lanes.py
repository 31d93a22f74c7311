"""A drawing of what happened: a lane for each party, time from left to right, faults in red."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

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
