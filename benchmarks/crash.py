"""`python -m benchmarks.crash`: 10,000 power cuts in recorded runs of the spool, to build/bench/crash.json.

Exit status 1 when one of them lost something or left a spool that does not start.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from benchmarks.power.cuts import Findings, cut_everywhere, record_run
from benchmarks.results import Figure, write

_COMMITS = 250
_RUNS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + _RUNS)
    with ProcessPoolExecutor() as processes:
        found = list(processes.map(_run, seeds, repeat(-(-arguments.cuts // _RUNS))))
    for each in found:
        for problem in each.first[:3]:
            print(problem[:500], file=sys.stderr)
    lost, failed = sum(each.lost for each in found), sum(each.failed for each in found)
    figures = [
        Figure("power cuts", sum(each.cuts for each in found), "cuts", aim=10_000),
        Figure("cuts that lost or revived an event", lost, "cuts", aim=0, higher_is_better=False),
        Figure("cuts after which it does not start", failed, "cuts", aim=0, higher_is_better=False),
    ]
    write("crash", figures, "python -m benchmarks.crash")
    return 1 if lost or failed else 0


def _run(seed: int, cuts: int) -> Findings:
    with tempfile.TemporaryDirectory() as scratch:
        calls = record_run(Path(scratch) / "device", seed, _COMMITS)
    return cut_everywhere(calls, cuts, seed)


if __name__ == "__main__":
    sys.exit(main())
