"""The page itself: one file that needs nothing else, verdict first, everything down to the evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import plotly.offline
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from local.audit_page.plots import heat_map, latency_curves, waterfall

WORST_DEVICES: Final = 20

EVIDENCE: Final = (
    "kind",
    "hop",
    "device",
    "epoch",
    "sequence",
    "source",
    "id",
    "route",
    "destination",
    "contract_version",
    "at_ms",
    "archive_file",
    "detail",
)
"""What the page shows of a finding."""


def write_page(report: Mapping[str, Any], path: Path) -> None:
    """Write the page of the audit's `report` (its document, format 2)."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    plots = {
        "heat": heat_map(report["findings"]),
        "waterfall": waterfall(report["lost_by_hop"]),
        "latency": latency_curves(report["latency"]),
    }
    worst = sorted(report["devices"], key=lambda each: (-each["lost"], -each["gaps"] if each["gaps"] else 0))
    path.write_text(
        environment.get_template("page.html.j2").render(
            report=report,
            totals=report["totals"],
            shown=len(report["findings"]),
            found=sum(each["count"] for each in report["kinds"]),
            worst=worst[:WORST_DEVICES],
            columns=EVIDENCE,
            plotly=Markup(plotly.offline.get_plotlyjs()),  # noqa: S704 - the library's own code
            plots=_embedded({name: figure.to_plotly_json() for name, figure in plots.items() if figure}),
            findings=_embedded([[each.get(name) for name in EVIDENCE] for each in report["findings"]]),
        ),
        encoding="utf-8",
    )


def _embedded(value: object) -> Markup:
    """JSON that can stand within a script element: no text of an event may end it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped here
