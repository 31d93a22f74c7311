"""A bar chart as SVG: the same text for the same figures, small enough to be committed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _ROW, _HEAD, _LABEL, _VALUE = 760, 22, 44, 250, 110
_COLOURS = ("#2a6f97", "#c9a227", "#8a8a8a")
_FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `series` from 0 chooses its colour, `told` is what stands behind it."""

    label: str
    value: float
    told: str
    series: int = 0


def chart(title: str, bars: Sequence[Bar], legend: Sequence[str] = (), *, logarithmic: bool = False) -> str:
    """The chart. On a logarithmic scale a bar begins at a tenth of the smallest value above 0."""
    height = _HEAD + _ROW * len(bars) + 10
    least = min((bar.value for bar in bars if bar.value > 0), default=1.0) / 10
    most = max((bar.value for bar in bars), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="18" {_FONT} font-weight="bold">{escape(title)}</text>',
        *_legend(legend),
    ]
    for number, bar in enumerate(bars):
        y = _HEAD + _ROW * number
        length = _share(bar.value, least, most, logarithmic=logarithmic) * (_WIDTH - _LABEL - _VALUE)
        colour = _COLOURS[bar.series % len(_COLOURS)]
        parts += [
            f'<text x="{_LABEL - 8}" y="{y + 14}" text-anchor="end" {_FONT}>{escape(bar.label)}</text>',
            f'<rect x="{_LABEL}" y="{y + 3}" width="{max(1.0, length):.1f}" height="14" fill="{colour}"/>',
            f'<text x="{_LABEL + max(1.0, length) + 6:.1f}" y="{y + 14}" {_FONT}>{escape(bar.told)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        x = 8 + 190 * number
        parts += [
            f'<rect x="{x}" y="27" width="10" height="10" fill="{_COLOURS[number % len(_COLOURS)]}"/>',
            f'<text x="{x + 15}" y="36" {_FONT}>{escape(name)}</text>',
        ]
    return parts


def _share(value: float, least: float, most: float, *, logarithmic: bool) -> float:
    if value <= 0 or most <= 0:
        return 0.0
    if not logarithmic:
        return value / most
    return (math.log(value) - math.log(least)) / (math.log(most) - math.log(least))
