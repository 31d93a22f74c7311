"""`python -m benchmarks.scale`: what fleets mean by the newest figures; writes build/bench/scale.json."""

from __future__ import annotations

from benchmarks.results import write
from benchmarks.scale.model import figures
from benchmarks.scale.parameters import newest
from benchmarks.scale.tables import TABLES

HOW = (
    "computed, not measured: a simulated queue with the figures of bench/cloud and bench/cost, list prices, "
    "default quotas (docs/scale.md)"
)


def main() -> None:
    """Compute, print the tables of docs/scale.md and the figures, and write these."""
    measured = newest()
    for table in TABLES.values():
        head, rows = table(measured)
        for line in [head, *rows]:
            print(" | ".join(line))
        print()
    write("scale", figures(measured), "python -m benchmarks.scale", HOW)


if __name__ == "__main__":
    main()
