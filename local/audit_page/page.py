"""The page itself: one file that needs nothing else, verdict first, everything down to the evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import plotly.offline
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from glue_jobs.delivery_audit.findings import BROKEN
from local.audit_page import evidence, words
from local.audit_page.heat_map import BANDS, heat_map
from local.audit_page.plots import dead_letters, duplicates, latency_curves, waterfall

PAGE: Final = "audit.html"
"""The page's name beside the report that it shows."""

WORST_DEVICES: Final = 20

_HERE: Final = Path(__file__).parent
_FONT: Final = {"family": "system-ui, sans-serif", "size": 12, "color": "#1c2430"}


def write_page(report: Mapping[str, Any], path: Path, archive: str | None = None) -> None:
    """Write the page of the audit's `report` (its document, format 3).

    `archive` is where the audited archive lies, for the page's commands; None: the environment's.
    """
    hops = {hop: name for hop, name in words.HOPS.items() if hop in report["lost_by_hop"]}
    cells = heat_map(report["hours"])
    plots = {
        "heat": cells and cells.figure,
        "waterfall": waterfall(report["lost_by_hop"]),
        "latency": latency_curves(report["latency"]),
        "duplicates": duplicates(report),
        "letters": dead_letters(report["dead_letters"]),
    }
    drawn = {name: _drawn(figure) for name, figure in plots.items() if figure}
    data = {
        "columns": evidence.COLUMNS,
        "findings": evidence.rows(report, archive),
        "plots": drawn,
        "broken": BROKEN,
        "hops": hops,
    }
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "plain": words.plain,
        "count": words.count,
        "duration": words.duration,
        "moment": words.moment,
    }
    text = environment.get_template("page.html.j2").render(
        report=report,
        totals=report["totals"],
        sentences=words.verdict(report),
        heat=cells,
        bands=BANDS,
        drawn=drawn,
        found=sum(each["count"] for each in report["kinds"]),
        worst=[each for each in report["devices"] if _is_worth_a_row(each)][:WORST_DEVICES],
        hops=hops,
        broken=BROKEN,
        style=_file("page.css"),
        script=_file("page.js"),
        plotly=Markup(plotly.offline.get_plotlyjs()),  # noqa: S704 - the library's own code
        data=_embedded(data),
    )
    path.write_text(text, encoding="utf-8")


def _is_worth_a_row(device: Mapping[str, Any]) -> bool:
    return any(device[name] for name in ("lost", "pending", "gaps", "explained", "not_stored", "tap_copies"))


def _drawn(figure: Any) -> dict[str, Any]:
    """A figure that leaves scrolling to the page, and the colours of its ground."""
    figure.update_layout(
        font=_FONT, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", dragmode=False
    )
    figure.update_xaxes(fixedrange=True, automargin=True, gridcolor="#e4e8ee", zeroline=False, ticks="")
    figure.update_yaxes(fixedrange=True, automargin=True, gridcolor="#e4e8ee", zeroline=False, ticks="")
    margin = figure.layout.margin
    figure.update_layout(margin={"l": 4, "r": 8, "t": margin.t or 4, "b": margin.b or 4})
    document: dict[str, Any] = json.loads(figure.to_json())
    document["layout"].pop("template", None)  # 7 kB a plot, of which nothing is used
    return document


def _file(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _embedded(value: object) -> Markup:
    """JSON that can stand within a script element: no text of an event may end it."""
    text = json.dumps(value, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped here
