"""A plot with a logarithmic axis as SVG: the same text for the same figures, small enough to be committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_WIDTH, _ROW, _BAR, _TOLD, _MARGIN = 900, 22, 14, 190, 8
_CHARACTER = 7.0  # pixels of a wide one, so that no label is cut off
_COLOURS = ("#2a6f97", "#c9792b")
_FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class PlotRow:
    """A bar between two values above 0, with `told` at the right; without `told` the label is a heading.

    `series`, 0 or 1, chooses the colour. With `marks` the bar is a thin line that has a dot at each.
    """

    label: str
    start: float = 1.0
    end: float = 1.0
    told: str = ""
    series: int = 0
    marks: tuple[float, ...] = ()


def plot(title: str, rows: Sequence[PlotRow], legend: Sequence[str], tick: Callable[[float], str]) -> str:
    """Return the plot: `legend` names the two series, `tick` writes a power of ten at the axis."""
    values = [value for row in rows if row.told for value in (row.start, row.end, *row.marks)]
    least = floor(log10(min(values, default=1.0)))
    most = max(ceil(log10(max(values, default=1.0))), least + 1)
    left = 2 * _MARGIN + _CHARACTER * max((len(row.label) for row in rows if row.told), default=0)
    head = 40 + 18 * bool(legend)
    bottom = head + _ROW * len(rows) + 6

    def x(value: float) -> float:
        return left + (log10(value) - least) / (most - least) * (_WIDTH - left - _TOLD)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{bottom + 10}" '
        f'viewBox="0 0 {_WIDTH} {bottom + 10}" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{bottom + 10}" fill="#ffffff"/>',
        _text(_MARGIN, 18, title, 'font-weight="bold"'),
    ]
    for number, name in enumerate(legend):
        at = _MARGIN + number * _WIDTH // 3
        parts += [_rectangle(at, 27, 10, 10, _COLOURS[number]), _text(at + 15, 36, name)]
    for power in range(least, most + 1):
        at = x(10.0**power)
        parts += [
            _rectangle(at, head, 1, bottom - head, "#d9d9d9"),
            _text(at, head - 4, tick(10.0**power), 'text-anchor="middle" fill="#666666"'),
        ]
    for number, row in enumerate(rows):
        y = head + _ROW * number + 4
        if not row.told:
            parts.append(_text(_MARGIN, y + 12, row.label, 'font-weight="bold"'))
            continue
        begin, end = sorted((x(row.start), x(row.end)))
        colour = _COLOURS[row.series]
        thin = bool(row.marks)
        parts += [
            _text(left - _MARGIN, y + 12, row.label, 'text-anchor="end"'),
            _rectangle(begin, y + 6 * thin, max(end - begin, 1), 2 if thin else _BAR, colour),
            *(f'<circle cx="{x(mark):.1f}" cy="{y + 7}" r="4" fill="{colour}"/>' for mark in row.marks),
            _text(_WIDTH - _TOLD + _MARGIN, y + 12, row.told),
        ]
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {_FONT} {style}>{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'
