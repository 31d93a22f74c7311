"""`python -m lab.benchmarks.scale [REGION]`: fleets by the newest figures; build/bench/scale.json."""

import sys
from argparse import Namespace
from functools import partial

from lab.benchmarks.results import Benchmark, Figure
from lab.benchmarks.scale.model import REGION, figures, newest
from lab.benchmarks.scale.tables import TABLES, quotas

HOW = (
    "computed, not measured: a simulated queue with the figures of bench/cloud, bench/cost and bench/audit, "
    "list prices, default quotas (docs/explanation/scale.md)"
)


def fleets(options: Namespace) -> list[Figure]:
    """Print the tables of docs/explanation/scale.md with the quotas of the region; return the figures."""
    measured = newest()
    for table in {**TABLES, "quotas": partial(quotas, region=options.region)}.values():
        head, rows = table(measured)
        for line in [head, *rows]:
            print(" | ".join(line))
        print()
    return figures(measured)


if __name__ == "__main__":
    region = {"nargs": "?", "default": REGION, "help": "whose default quotas are printed (%(default)s)"}
    sys.exit(Benchmark("scale", {"fleets": fleets}, HOW, {"region": region}).main())
