"""Write docs/reference/figures.md, its plots and the README's table from build/; `--check` only compares.

What was measured is kept in docs/figures.json, one entry a result file: a run replaces its own entry, and
the page can be made again without the run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

_WIDTH, _ROW, _BAR, _TOLD, _MARGIN = 900, 22, 14, 190, 8
_CHARACTER = 7.0  # pixels of a wide one, so that no label is cut off
_COLOURS = ("#2a6f97", "#c9792b")
_FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class Row:
    """A bar between two values above 0, with `told` at the right; without `told` the label is a heading.

    `series`, 0 or 1, chooses the colour. With `marks` the bar is a thin line that has a dot at each.
    """

    label: str
    start: float = 1.0
    end: float = 1.0
    told: str = ""
    series: int = 0
    marks: tuple[float, ...] = ()


def plot(title: str, rows: Sequence[Row], legend: Sequence[str], tick: Callable[[float], str]) -> str:
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


ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools import chosen_figures  # noqa: E402 - after the path it needs
from tools.places import place  # noqa: E402

Result = Mapping[str, Any]
Results = dict[str, Result]

BUILD = ROOT / "build"
KEPT = ROOT / "docs" / "figures.json"
PAGE = ROOT / "docs" / "reference" / "figures.md"
PLOTS = ROOT / "docs" / "figures"
README = ROOT / "README.md"
FOLDERS = ("bench", "chaos")

_PART = re.compile(r"_(stages_\d|duckdb_)")
_SIZE = re.compile(r"\d{5,}")
_SHORTEST_S = 0.001
"""Where the axis of times begins."""

_CHOSEN = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)

HEAD = """\
# Figures

The newest run of each command. `make figures` writes this page from `docs/figures.json`, to which each run
under `build/` adds its own, and which also keeps what this page leaves out: the parts of a run (Spark's
stages, DuckDB's queries). Each section says where its figures come from:

- **deployed**: the stacks as they are deployed, in an emulated cloud on the same machine. Nothing ran on AWS.
- **stand-in**: the real forwarder and Mosquitto; in the cloud's place two processes run the routers' code
  ([what that leaves out](../explanation/chaos.md)). Its times say nothing of AWS.
- **simulated**: the product's code in one process, over models, in virtual time
  ([what that leaves out](../explanation/histories.md#what-it-does-not-show)).
- **alone**: one part of the plane, without the others.
- **computed**: from other figures and list prices.

All of a run shares one machine; times are those of that machine and of whatever else ran on it
(`machine load`). A missed aim stays in the tables, in bold.
"""

PAPER = """\
The source paper sent 100,000 events, one a millisecond, and killed its router every 10 s: none was lost at
least once, about 7,000 at best effort. Ours are the forwarder and the router function, both killed; the cloud
is emulated, so that losses and duplicates compare, and times do not. A service waits while 1,000 of its
messages have no receipt, so it sends no faster than the machine takes it; the kills go on until all is sent.
At best effort nothing waits for anybody: what is only in the forwarder's memory is lost with it, and the
oldest of what the cloud does not take in time. `again` is what consumers received twice, `sent again` what
devices sent twice ([why](../explanation/chaos.md#copies)).
"""
PAPER_HEAD = ("paper sent", "paper events/s", "paper lost")

ALARMS = """\
From the service that sends an alarm to its consumer, in every scenario that breaks something, the longest
on top: median, 99th percentile and maximum in seconds. An alarm that is sent while its path is broken waits
until the path is whole again and the forwarder has connected again, which it tries every 1 to 5 s.
`million` sends 3,000 events a second, about what the machine carries: its alarms pass what waits after a
fault, by a rule and a router of their own.
"""
ALARMS_HEAD = [
    "scenario",
    "where",
    *(f"{end}: {time}" for end in ("alarm centre", "in the home") for time in ("median", "99 %", "most")),
]

PRODUCTS = ("DuckDB", "EventBridge", "Mosquitto's bridge")
"""The peers that are products; the others are the plane itself in another form."""

WORDS = {
    "cpu": "CPU",
    "rss": "memory",
    "sqs": "SQS",
    "p50": "median",
    "p99": "99th percentile",
    "max": "most",
}
"""Parts of figures' names that the page writes in other words."""


def main() -> int:
    """Collect and write, or with `--check` say whether page and plots are what docs/figures.json gives."""
    results: Results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if "--check" not in sys.argv:
        results |= collect(BUILD)
        KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    wanted = {
        PAGE: page(results),
        README: chosen(README.read_text(), results),
        **{PLOTS / f"{name}.svg": svg for name, svg in plots(results).items()},
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what docs/figures.json gives; run `make figures`")
        return int(bool(stale))
    PLOTS.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(wanted[path])
    return 0


def collect(build: Path) -> Results:
    """What the results under `build` say, by folder and name."""
    return {
        f"{folder}/{path.stem}": json.loads(path.read_text())
        for folder in FOLDERS
        for path in sorted((build / folder).glob("*.json"))
        if "figures" in json.loads(path.read_text())
    }


def page(results: Results) -> str:
    """The page."""
    drawn = plots(results)
    parts = [HEAD]
    if rows := _paper_rows(results):
        parts += [
            "## The source paper's test\n",
            PAPER,
            _table(["", "sent", "events/s", "kills", "lost", "again", "sent again", *PAPER_HEAD], rows),
        ]
    if alarms := _alarm_rows(results):
        parts += ["## Alarms, from the worst scenario to the best\n", ALARMS, _table(ALARMS_HEAD, alarms)]
    for name in drawn:
        parts.append(f"![{name}](../figures/{name}.svg)\n")
    for name, result in sorted(results.items()):
        parts += [f"## {name}\n", _origin(name, result), _figures(result["figures"])]
    return "\n".join(parts)


def chosen(text: str, results: Results) -> str:
    """`text` with the table of the few figures between its marks."""
    table = _table(["test", "result", "where", "command"], chosen_figures.rows(results))
    return _CHOSEN.sub(lambda found: f"{found[1]}{table}{found[2]}", text)


def plots(results: Results) -> dict[str, str]:
    """The plots that there are figures for, by name, as SVG."""
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
        rows.append(Row(words(kind), _SHORTEST_S, max(value, _SHORTEST_S), told, series))
    title = "From a fault's end to the arrival of the oldest waiting event, worst of a run"
    return plot(title, rows, ["stand-in", "deployed"], _seconds) if rows else ""


def _urgent(results: Results) -> str:
    rows = []
    for heading, way in (("at the alarm centre", "cloud"), ("in the home", "home")):
        seen = sorted(_alarm_times(results, way), key=lambda each: each[1][-1], reverse=True)
        rows += [Row(heading)] if seen else []
        for run, times in seen:
            median, rare, most = (max(time, _SHORTEST_S) for time in times)
            told = ", ".join(number(time) for time in times) + " s"
            series = int(place(run) == "deployed")
            rows.append(Row(run.partition("/")[2], median, most, told, series, (median, rare, most)))
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
        rows += [Row(f"against {peer}")] if compared else []
        for each in compared:
            if _size(each["name"]) == largest:
                told, series = f"{number(each['ratio'])} times", int(each["ratio"] < 1)
                rows.append(Row(words(each["name"]), 1.0, each["ratio"], told, series))
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


def _paper_rows(results: Results) -> list[list[str]]:
    rows = []
    for name, told, published in (
        ("chaos/paper", "at least once", "0"),
        ("chaos/paper-best-effort", "best effort", "about 7,000"),
    ):
        if name in results:
            values = {each["name"]: each["value"] for each in results[name]["figures"]}
            names = ("sent", "send_rate", "faults", "lost", "duplicated")
            seen = [f"{values[each]:,.0f}" for each in names]
            # Runs of before say nothing of it.
            again = f"{values['sent_again']:,.0f}" if "sent_again" in values else ""
            rows.append([told, *seen, again, "100,000", "1,000", published])
    return rows


def _alarm_rows(results: Results) -> list[list[str]]:
    seen = sorted(_alarm_times(results, "cloud", "home"), key=lambda each: each[1][2], reverse=True)
    return [[run.partition("/")[2], place(run), *map(number, seconds)] for run, seconds in seen]


def _origin(name: str, result: Result) -> str:
    clock = f"; {result['clock']}" if result.get("clock") else ""
    return f"**{place(name)}**: `{result['command']}`, {result['date'][:10]}, {result['machine']}{clock}.\n"


def words(name: str) -> str:
    """The name of a figure as a reader says it."""
    parts = name.replace("_", " ").replace("-", " ").split()
    return " ".join(f"{int(part):,}" if part.isdecimal() else WORDS.get(part, part) for part in parts)


def number(value: float) -> str:
    """A count in full, anything else with three digits."""
    if isinstance(value, int) or value == 0 or float(value).is_integer():
        return f"{value:,.0f}"
    digits = max(0, 2 - floor(log10(abs(value))))
    return f"{round(value, 2 - floor(log10(abs(value)))):,.{digits}f}"


def _figures(figures: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for each in figures:
        if _PART.search(each["name"]):
            continue
        reached = "met" if each.get("met") else "**missed**"
        aim = "" if each.get("aim") is None else f"{number(each['aim'])} {reached}"
        peer = "" if each.get("peer_value") is None else f"{each['peer']}: {number(each['peer_value'])}"
        ratio = "" if each.get("ratio") is None else number(each["ratio"])
        value = f"{number(each['value'])} {each['unit']}"
        rows.append([words(each["name"]), value, aim, peer, ratio, each.get("note") or ""])
    return _table(["figure", "value", "aim", "peer", "ratio", "note"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


if __name__ == "__main__":
    sys.exit(main())
