"""`python -m benchmarks.crash`: 10,000 power cuts and 2,000 random damages under the spool; writes
build/bench/crash.json.

Exit status 1 when one of them lost something silently, invented something or left a spool that does not
start. `--seed N --cuts 0 --damages 1` repeats damage N alone; `--kind` makes all of one kind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import count, groupby, islice, repeat
from pathlib import Path

from benchmarks.power.cuts import Findings, cut_everywhere, record_run
from benchmarks.power.damage import A_SPOOL, DAMAGES, DamageFindings, damage_at_random, kind_of
from benchmarks.results import Figure, write

_COMMITS = 250
_RUNS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--damages", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=DAMAGES, help="damages of this kind only (default: each in turn)")
    arguments = parser.parse_args()
    wanted = (seed for seed in count(arguments.seed) if arguments.kind in (None, kind_of(seed)))
    seeds = list(islice(wanted, arguments.damages))
    with ProcessPoolExecutor() as processes:
        # Those of one spool together: it is made once.
        spools = [list(group) for _, group in groupby(seeds, lambda seed: seed // A_SPOOL)]
        damaged = processes.map(damage_at_random, spools)
        runs = range(arguments.seed, arguments.seed + _RUNS if arguments.cuts else arguments.seed)
        cut = list(processes.map(_run, runs, repeat(-(-arguments.cuts // _RUNS))))
        findings = DamageFindings()
        for each in damaged:
            findings.add(each)
    for problem in (*(problem for each in cut for problem in each.first[:3]), *findings.faults[:20]):
        print(problem[:700], file=sys.stderr)
    write("crash", [*_of_cuts(cut), *_of_damages(findings)], "python -m benchmarks.crash")
    return 1 if findings.faults or any(each.first for each in cut) else 0


def _of_cuts(found: list[Findings]) -> list[Figure]:
    return [
        Figure("power cuts", sum(each.cuts for each in found), "cuts", aim=10_000),
        _none("cuts that lost or revived an event", sum(each.lost for each in found), "cuts"),
        _none("cuts after which it does not start", sum(each.failed for each in found), "cuts"),
    ]


def _of_damages(findings: DamageFindings) -> list[Figure]:
    figures = [
        Figure("random damages", findings.sum("damages"), "damages", aim=2_000),
        _none("damages with a silent loss", findings.sum("silent"), "damages"),
        _none("damages with an invented event", findings.sum("invented"), "damages"),
        _none("damages after which it does not start", findings.sum("failed"), "damages"),
        Figure(
            "events lost by damages",
            findings.lost,
            "events",
            note=f"at most {findings.reported:,} by the reports",
        ),
    ]
    for kind in DAMAGES:
        counts = findings.counts
        opened = counts[kind, "damages"] - counts[kind, "failed"]
        unknown = counts[kind, "without a number"]
        figures += [
            Figure(f"{kind}: opened", opened, "damages", aim=counts[kind, "damages"]),
            Figure(f"{kind}: nothing lost", counts[kind, "lossless"], "damages"),
            Figure(f"{kind}: lost and reported", counts[kind, "reported"], "damages"),
            Figure(
                f"{kind}: reported without a number",
                unknown,
                "damages",
                note="a part of both: the note of the last commit was damaged" if unknown else "",
            ),
            _none(f"{kind}: silently lost", counts[kind, "silent"], "damages"),
            _none(f"{kind}: invented", counts[kind, "invented"], "damages"),
        ]
    return figures


def _none(name: str, value: int, unit: str) -> Figure:
    return Figure(name, value, unit, aim=0, higher_is_better=False)


def _run(seed: int, cuts: int) -> Findings:
    with tempfile.TemporaryDirectory() as scratch:
        calls = record_run(Path(scratch) / "device", seed, _COMMITS)
    return cut_everywhere(calls, cuts, seed)


if __name__ == "__main__":
    sys.exit(main())
