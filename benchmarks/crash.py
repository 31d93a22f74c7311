"""`python -m benchmarks.crash`: 10,000 power cuts and 2,000 random damages under the spool; writes
build/bench/crash.json.

Exit status 1 when one of them lost something silently, invented something or left a spool that does not
start.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from benchmarks.power.cuts import MEMORY, Findings, cut_everywhere, record_run
from benchmarks.power.damage import DamageFindings, damage_at_random
from benchmarks.results import Figure, write

_COMMITS = 250
_RUNS = 10
_SPOOLS = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--damages", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + _RUNS)
    with ProcessPoolExecutor() as processes:
        found = list(processes.map(_run, seeds, repeat(-(-arguments.cuts // _RUNS))))
        spools = range(arguments.seed, arguments.seed + _SPOOLS)
        damaged = list(processes.map(_damage, spools, repeat(-(-arguments.damages // _SPOOLS))))
    for problems in (each.first for each in (*found, *damaged)):
        for problem in problems[:3]:
            print(problem[:500], file=sys.stderr)
    lost, failed = sum(each.lost for each in found), sum(each.failed for each in found)
    figures = [
        Figure("power cuts", sum(each.cuts for each in found), "cuts", aim=10_000),
        Figure("cuts that lost or revived an event", lost, "cuts", aim=0, higher_is_better=False),
        Figure("cuts after which it does not start", failed, "cuts", aim=0, higher_is_better=False),
    ]
    faults = sum(each.silent + each.invented + each.failed for each in damaged)
    figures += [
        Figure("random damages", sum(each.damages for each in damaged), "damages", aim=2_000),
        Figure("damages that lost nothing", sum(each.harmless + each.saved for each in damaged), "damages"),
        Figure(
            "damages whose losses were reported",
            sum(each.reported for each in damaged),
            "damages",
            note=f"{sum(each.unknown for each in damaged)} of them without a number",
        ),
        Figure(
            "damages that lost events silently",
            sum(each.silent for each in damaged),
            "damages",
            aim=0,
            higher_is_better=False,
        ),
        Figure(
            "damages that invented an event",
            sum(each.invented for each in damaged),
            "damages",
            aim=0,
            higher_is_better=False,
        ),
        Figure(
            "damages after which it does not start",
            sum(each.failed for each in damaged),
            "damages",
            aim=0,
            higher_is_better=False,
        ),
    ]
    write("crash", figures, "python -m benchmarks.crash")
    return 1 if lost or failed or faults else 0


def _run(seed: int, cuts: int) -> Findings:
    with tempfile.TemporaryDirectory() as scratch:
        calls = record_run(Path(scratch) / "device", seed, _COMMITS)
    return cut_everywhere(calls, cuts, seed)


def _damage(seed: int, damages: int) -> DamageFindings:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        return damage_at_random(Path(scratch), seed, damages)


if __name__ == "__main__":
    sys.exit(main())
