"""Write docs/reference/figures.md, its plots and the README's table from build/; `--check` only compares.

What was measured is kept in docs/figures.json, one entry a result file: a run replaces its own entry, and
the page can be made again without the run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools import chosen_figures  # noqa: E402 - after the path it needs
from tools.bars import Bar, chart  # noqa: E402

Result = Mapping[str, Any]
Results = dict[str, Result]

BUILD = ROOT / "build"
KEPT = ROOT / "docs" / "figures.json"
PAGE = ROOT / "docs" / "reference" / "figures.md"
PLOTS = ROOT / "docs" / "figures"
README = ROOT / "README.md"
FOLDERS = ("bench", "chaos")

_CHOSEN = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)

HEAD = """\
# Figures

The newest run of each command. `make figures` writes this page from `docs/figures.json`, to which each run
under `build/` adds its own. [chaos.md](../explanation/chaos.md) describes the runs of `chaos/` and says what
of them is emulated. All of a run shares one machine; times are those of that machine and of whatever else
ran on it (`machine_load`).
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
    for name in drawn:
        parts.append(f"![{name}](../figures/{name}.svg)\n")
    for name, result in sorted(results.items()):
        parts += [f"## {name}\n", _origin(result), _figures(result["figures"])]
    return "\n".join(parts)


def chosen(text: str, results: Results) -> str:
    """`text` with the table of the few figures between its marks."""
    table = _table(["test", "result", "command"], chosen_figures.rows(results))
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
    bars = [
        Bar(kind, value, f"{value:.3g} s", int(run == "chaos/cloud"))
        for kind, (value, run) in sorted(worst.items(), key=lambda item: item[1])
    ]
    legend = ["stand-in cloud", "emulated cloud"]
    return (
        chart("Worst time from a fault's end to the oldest waiting event's arrival", bars, legend)
        if bars
        else ""
    )


def _urgent(results: Results) -> str:
    bars = []
    for name, result in sorted(results.items()):
        values = {each["name"]: each["value"] for each in result["figures"]}
        for way in ("cloud", "home"):
            for series, when in enumerate(("all", "faults")):
                if (value := values.get(f"urgent_{way}_{when}_p50")) is not None:
                    label = f"{name.partition('/')[2]}, {'alarm centre' if way == 'cloud' else 'in the home'}"
                    bars.append(Bar(label, value, f"{value:,.0f} ms", series))
    legend = ["the whole run", "sent during a fault"]
    return chart("Median time of an alarm (logarithmic)", bars, legend, logarithmic=True) if bars else ""


def _peers(results: Results) -> str:
    bars = [
        Bar(
            f"{name.partition('/')[2]}: {each['name']}"[:40],
            each["ratio"],
            f"{each['ratio']:g} x {each['peer']}"[:18],
        )
        for name, result in sorted(results.items())
        for each in result["figures"]
        if each.get("ratio") is not None
    ]
    return (
        chart("How many times better than the peer (1 is equal, logarithmic)", bars, logarithmic=True)
        if bars
        else ""
    )


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


def _origin(result: Result) -> str:
    clock = f"; {result['clock']}" if result.get("clock") else ""
    return f"`{result['command']}`, {result['date'][:10]}, {result['machine']}{clock}.\n"


def _figures(figures: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for each in figures:
        aim = "" if each.get("aim") is None else f"{each['aim']:g} {'met' if each['met'] else '**missed**'}"
        peer = "" if each.get("peer_value") is None else f"{each['peer']}: {each['peer_value']:,g}"
        ratio = "" if each.get("ratio") is None else f"{each['ratio']:g}"
        rows.append(
            [each["name"], f"{each['value']:,g} {each['unit']}", aim, peer, ratio, each.get("note") or ""]
        )
    return _table(["figure", "value", "aim", "peer", "ratio", "note"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


if __name__ == "__main__":
    sys.exit(main())
