"""Keep the results under build/ in docs/figures.json, from which `make tables` writes tables and plots.

A run replaces its own entry, so that the pages can be made again without the run. The texts around the
figures are in figures.toml.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

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


Figure = Mapping[str, Any]
Result = Mapping[str, Any]
Results = dict[str, Result]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "figures.json"
FOLDERS = ("bench", "chaos")
TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
UNKNOWN = "not said"

_SIZE = re.compile(r"\d{5,}")
_SHORTEST_S = 0.001
"""Where the axis of times begins."""

PRODUCTS = ("DuckDB", "EventBridge", "Mosquitto's bridge")
"""The peers that are products; the others are the plane itself in another form."""

_PARTS = {
    "cpu": "CPU",
    "rss": "memory",
    "sqs": "SQS",
    "p50": "median",
    "p99": "99th percentile",
    "max": "most",
}
"""Parts of figures' names that the pages write in other words."""


def main() -> None:
    """Add the results under build/ to docs/figures.json."""
    KEPT.write_text(json.dumps(kept() | collect(ROOT / "build"), indent=1, sort_keys=True) + "\n")


def kept() -> Results:
    """Return the published results, by folder and name."""
    results: Results = json.loads(KEPT.read_text())
    return results


def collect(build: Path) -> Results:
    """Return the results under `build`, by folder and name."""
    return {
        f"{folder}/{path.stem}": json.loads(path.read_text())
        for folder in FOLDERS
        for path in sorted((build / folder).glob("*.json"))
        if "figures" in json.loads(path.read_text())
    }


def place(result: str) -> str:
    """Return where `result` ("bench/edge") was measured, in the words that the page of figures explains."""
    return next((place for place, results in TEXTS["places"].items() if result in results), UNKNOWN)


def page(results: Results) -> str:
    """Return the site's page of all figures as Markdown."""
    parts = [
        "# All figures\n",
        "As [figures](figures.md) explains them; a missed aim is bold.",
        'The same as data: <a href="../figures.json">figures.json</a>.\n',
    ]
    for name, result in sorted(results.items()):
        parts += [f"## {name}\n", _origin(name, result), _figures(result["figures"])]
    return "\n".join(parts)


def readme_table(results: Results) -> str:
    """Return the results that the README shows."""
    rows = []
    for row in TEXTS["readme"]:
        result = results[row["run"]]
        values = {each["name"]: each["value"] for each in result["figures"]}
        values |= {f"{each['name']}_peer": each.get("peer_value") for each in result["figures"]}
        told = row["result"].format_map(values)
        rows.append([row["about"], told, place(row["run"]), f"`{result['command']}`"])
    return table(["test", "result", "where", "command"], rows)


def chosen_table(results: Results) -> str:
    """Return the figures that matter most, with their aims and peers."""
    rows = []
    for row in TEXTS["chosen"]:
        run = row["run"]
        (each,) = (each for each in results[run]["figures"] if each["name"] == row["figure"])
        rows.append([row["about"], _value(each), _aim(each), _peer(each), f"{_linked(run)}, {place(run)}"])
    return table(["measured", "value", "aim", "peer", "run"], rows)


def missed_table(results: Results) -> str:
    """Return every missed aim; those of one run with the same reason share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for run, result in sorted(results.items()):
        for each in missed(result):
            name = words(each["name"].removeprefix(f"{run.partition('/')[2]}_"))
            told = f"{name}: {_value(each)} ({number(each['aim'])})"
            rows.setdefault((_linked(run), reason(run, each["name"])), []).append(told)
    return table(["run", "figure (aim)", "why"], ([run, ", ".join(rows[run, why]), why] for run, why in rows))


def _linked(run: str) -> str:
    # The site has a page in the place of the file, with a heading for each run.
    return f"[{run}](../figures.json#{run.replace('/', '')})"


def missed(result: Result) -> list[Figure]:
    """Return the figures of `result` that miss their aims."""
    return [each for each in result["figures"] if each.get("aim") is not None and not each.get("met")]


def reason(run: str, name: str) -> str:
    """Return why the figure `name` of `run` misses its aim, "" where figures.toml has no reason."""
    reasons = (each for each in TEXTS["missed"] if each["run"] == run and fnmatchcase(name, each["figures"]))
    return next((each["why"] for each in reasons), "")


def paper_table(results: Results) -> str:
    """Return the source paper's test beside the paper's result."""
    rows = []
    for run, told, published in (
        ("chaos/paper", "at least once", "0"),
        ("chaos/paper-best-effort", "best effort", "about 7,000"),
    ):
        values = {each["name"]: each["value"] for each in results[run]["figures"]}
        names = ("sent", "faults", "lost", "duplicated", "sent_again")
        rows.append([told, *(f"{values[each]:,.0f}" for each in names), published])
    return table(["", "sent", "kills", "lost", "received twice", "sent twice", "the paper lost"], rows)


def plots(results: Results) -> dict[str, str]:
    """Return the plots that there are figures for, by name, as SVG."""
    found = {
        "recovery": _recovery(results),
        "urgent": _urgent(results),
        "peers": _peers(results),
    }
    return {name: svg for name, svg in found.items() if svg}


def _recovery(results: Results) -> str:
    worst: dict[str, tuple[float, str]] = {}
    for run in ("chaos/singly", "chaos/cloud"):
        for each in results.get(run, {"figures": []})["figures"]:
            kind = each["name"].removeprefix("recovery_")
            if kind != each["name"]:
                worst.setdefault(kind, (each["value"], run))
    rows = []
    for kind, (value, run) in sorted(worst.items(), key=lambda item: item[1], reverse=True):
        told, series = f"{number(value)} s", int(place(run) == "deployed")
        rows.append(PlotRow(words(kind), _SHORTEST_S, max(value, _SHORTEST_S), told, series))
    title = "From a fault's end to the arrival of the oldest waiting event, worst of a run"
    return plot(title, rows, ["stand-in", "deployed"], _seconds) if rows else ""


def _urgent(results: Results) -> str:
    rows = []
    for heading, way in (("at the alarm centre", "cloud"), ("in the home", "home")):
        seen = sorted(_alarm_times(results, way), key=lambda each: each[1][-1], reverse=True)
        rows += [PlotRow(heading)] if seen else []
        for run, times in seen:
            median, rare, most = (max(time, _SHORTEST_S) for time in times)
            told = ", ".join(number(time) for time in times) + " s"
            series = int(place(run) == "deployed")
            rows.append(PlotRow(run.partition("/")[2], median, most, told, series, (median, rare, most)))
    title = "An alarm's time by scenario: median, 99th percentile and maximum"
    return plot(title, rows, ["stand-in", "deployed"], _seconds) if rows else ""


def _peers(results: Results) -> str:
    rows = []
    for peer in PRODUCTS:
        compared = [
            each
            for result in results.values()
            for each in result["figures"]
            if each.get("peer") == peer and each.get("ratio")
        ]
        largest = max((_size(each["name"]) for each in compared), default=0)
        rows += [PlotRow(f"against {peer}")] if compared else []
        for each in compared:
            if _size(each["name"]) == largest:
                told, series = f"{number(each['ratio'])} times", int(each["ratio"] < 1)
                rows.append(PlotRow(words(each["name"]), 1.0, each["ratio"], told, series))
    title = "How many times better than a product in the same run"
    return plot(title, rows, ["better", "worse"], lambda times: f"{times:g}") if rows else ""


def _size(name: str) -> int:
    """Return the number of events in the name of a figure, 0 without one."""
    found = _SIZE.search(name)
    return int(found[0]) if found else 0


def _alarm_times(results: Results, *ways: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each run that has alarms, with median, 99th percentile and maximum of each way, in seconds."""
    names = [f"urgent_{way}_all_{part}" for way in ways for part in ("p50", "p99", "max")]
    for run, result in results.items():
        values = {each["name"]: each["value"] for each in result["figures"]}
        if values.keys() >= set(names):
            yield run, [values[name] / 1000 for name in names]


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"


def _origin(name: str, result: Result) -> str:
    clock = f"; {result['clock']}" if result.get("clock") else ""
    return f"**{place(name)}**: `{result['command']}`, {result['date'][:10]}, {result['machine']}{clock}.\n"


def words(name: str) -> str:
    """Return the name of a figure as a reader says it."""
    parts = name.replace("_", " ").replace("-", " ").split()
    return " ".join(f"{int(part):,}" if part.isdecimal() else _PARTS.get(part, part) for part in parts)


def number(value: float) -> str:
    """Return a count in full, anything else with three digits."""
    if isinstance(value, int) or value == 0 or float(value).is_integer():
        return f"{value:,.0f}"
    digits = max(0, 2 - floor(log10(abs(value))))
    return f"{round(value, 2 - floor(log10(abs(value)))):,.{digits}f}"


def _figures(figures: Iterable[Figure]) -> str:
    rows = []
    for each in figures:
        ratio = "" if each.get("ratio") is None else number(each["ratio"])
        rows.append(
            [words(each["name"]), _value(each), _aim(each), _peer(each), ratio, each.get("note") or ""]
        )
    return table(["figure", "value", "aim", "peer", "ratio", "note"], rows)


def _value(figure: Figure) -> str:
    return f"{number(figure['value'])} {figure['unit']}".rstrip()


def _aim(figure: Figure) -> str:
    if figure.get("aim") is None:
        return ""
    return f"{number(figure['aim'])}{'' if figure.get('met') else ' **missed**'}"


def _peer(figure: Figure) -> str:
    return "" if figure.get("peer_value") is None else f"{figure['peer']}: {number(figure['peer_value'])}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


TABLES = {
    "readme": readme_table,
    "chosen": chosen_table,
    "missed": missed_table,
    "paper": paper_table,
}
"""The tables of figures, by what follows `figures-` in their names."""


if __name__ == "__main__":
    main()
