"""`python -m benchmarks.scale [REGION]`: what fleets mean by the newest figures; build/bench/scale.json."""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.results import write
from benchmarks.scale.model import figures
from benchmarks.scale.parameters import REGION, newest
from benchmarks.scale.tables import TABLES, quotas

HOW = (
    "computed, not measured: a simulated queue with the figures of bench/cloud, bench/cost and bench/audit, "
    "list prices, default quotas (docs/explanation/scale.md)"
)


def main(region: str) -> None:
    """Print the tables of docs/explanation/scale.md with the quotas of `region`, and write the figures."""
    measured = newest()
    for table in {**TABLES, "quotas": partial(quotas, region=region)}.values():
        head, rows = table(measured)
        for line in [head, *rows]:
            print(" | ".join(line))
        print()
    write("scale", figures(measured), "python -m benchmarks.scale", HOW)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else REGION)
