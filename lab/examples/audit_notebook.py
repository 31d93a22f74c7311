"""A notebook of an audit's results: latency, losses by hop, coverage by day, worst devices.

Cells begin with `# %%`, so VS Code and Jupyter (by jupytext) open it as a notebook and show the plots. As a
program, `python lab/examples/audit_notebook.py build/audit`, it writes them to build/audit/plots.html. It
needs DuckDB alone; the audit with `--DELIVERIES true` writes what the latencies are taken of.
"""

# %%
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import duckdb

# A notebook has words of its own where a program has the folder.
audit = Path(sys.argv[1]) if len(sys.argv) == 2 else Path("build/audit")
colours = ("#2a78b8", "#d9822b", "#b23a48")


class Bars(NamedTuple):
    """A chart of bars, each of parts with the names of `parts`; a notebook shows it as a picture."""

    title: str
    parts: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""

    def _repr_svg_(self) -> str:
        most = max([0, *(sum(values) for _, values in self.rows)]) or 1
        lines = [f'<text y="16" font-weight="bold">{escape(self.title)}</text>']
        for at, part in enumerate(self.parts):
            lines.append(f'<text x="{180 + 150 * at}" y="36" fill="{colours[at]}">{escape(part)}</text>')
        for at, (label, values) in enumerate(self.rows):
            x, y = 180.0, 48 + 24 * at
            lines.append(f'<text x="172" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
            for colour, value in zip(colours, values, strict=False):
                width = 400 * max(0, value) / most  # a clock that is ahead makes a time negative
                lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>')
                x += width
            told = " + ".join(f"{value:,.0f}" for value in values)
            lines.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{told} {self.unit}</text>')
        begin = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
        return f'{begin} width="760" height="{56 + 24 * len(self.rows)}">{"".join(lines)}</svg>'


def ask(table: str, query: str) -> list[tuple[str, list[float]]]:
    """Return the label and the values of each row of a query over one of the audit's tables."""
    files = sorted(map(str, audit.glob(f"{table}/date=*/*.parquet")))
    if not files:
        return []  # a table without a row has no file
    duckdb.read_parquet(files, hive_partitioning=True, union_by_name=True).create_view("audit", replace=True)
    found = duckdb.execute(query).fetchall()
    return [(str(label), [float(each or 0) for each in values]) for label, *values in found]


# %% [markdown]
# How long events took on each stretch: 99 of 100 took no longer. Times are of the clocks that saw each step.

# %%
latency = Bars(
    "Latency, 99th percentile",
    ["p99"],
    ask(
        "deliveries",
        """
        UNPIVOT (
            SELECT quantile_cont(accepted_at_ms - said_at_ms, 0.99) AS "said to cloud",
                quantile_cont(accepted_at_ms - stored_at_ms, 0.99) AS "stored to cloud",
                quantile_cont(routed_at_ms - accepted_at_ms, 0.99) AS "cloud to inbox",
                quantile_cont(taken_at_ms - routed_at_ms, 0.99) AS "inbox to reader"
            FROM audit
        ) ON COLUMNS(*)
        """,
    ),
    "ms",
)
latency

# %%
losses = Bars(
    "Losses by hop",
    ["findings of lost events"],
    ask("findings", "SELECT hop, count(*) FROM audit WHERE kind = 'lost' GROUP BY hop ORDER BY 2 DESC, hop"),
)
losses

# %%
coverage = Bars(
    "Coverage by day: events of devices",
    ["attested by manifests", "seen, not attested", "not seen"],
    ask(
        "devices",
        """
        SELECT date, sum(manifest), sum(numbering + tap), sum(nothing) FROM audit
        GROUP BY date ORDER BY date
        """,
    ),
)
coverage

# %%
worst = Bars(
    "Worst devices",
    ["lost on the way", "lost at home", "unrecorded"],
    ask(
        "devices",
        """
        SELECT client_id, sum(lost), sum(home_lost), sum(unrecorded) FROM audit GROUP BY client_id
        HAVING sum(lost + home_lost + unrecorded) > 0
        ORDER BY sum(lost + home_lost + unrecorded) DESC, client_id LIMIT 15
        """,
    ),
)
worst

# %%
if __name__ == "__main__" and len(sys.argv) == 2:
    page = audit / "plots.html"
    pictures = "\n".join(each._repr_svg_() for each in (latency, losses, coverage, worst))
    page.write_text(
        f"<!DOCTYPE html>\n<meta charset=utf-8>\n<title>An audit</title>\n{pictures}\n", encoding="utf-8"
    )
    print(page)
