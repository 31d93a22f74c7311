"""`python -m lab.benchmarks.crash`: 10,000 power cuts and 2,000 random damages under the spool.

Exit status 1 when one of them lost something silently, invented something or left a spool that does not
start. `--seed N --cuts 0 --damages 1` repeats damage N alone; `--kind` makes all of one kind.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, groupby, islice, repeat
from pathlib import Path

from lab.benchmarks.power.cuts import Findings, cut_everywhere, record_run
from lab.benchmarks.power.damage import A_SPOOL, DAMAGES, DamageFindings, damage_at_random, kind_of
from lab.benchmarks.results import Benchmark, Figure, none

_COMMITS = 250
_RUNS = 10


def cuts(options: Namespace) -> Iterator[Figure]:
    """Cut the power in ten recorded runs."""
    runs = range(options.seed, options.seed + _RUNS if options.cuts else options.seed)
    with ProcessPoolExecutor() as processes:
        found = list(processes.map(_run, runs, repeat(-(-options.cuts // _RUNS))))
    _show([problem for each in found for problem in each.first[:3]])
    yield Figure("power cuts", sum(each.cuts for each in found), "cuts", aim=10_000)
    yield none("cuts that lost or revived an event", sum(each.lost for each in found), "cuts")
    yield none("cuts after which it does not start", sum(each.failed for each in found), "cuts")


def damages(options: Namespace) -> Iterator[Figure]:
    """Damage spools at rest, each kind in turn."""
    wanted = (seed for seed in count(options.seed) if options.kind in (None, kind_of(seed)))
    seeds = islice(wanted, options.damages)
    findings = DamageFindings()
    with ProcessPoolExecutor() as processes:
        # Those of one spool together: it is made once.
        spools = [list(group) for _, group in groupby(seeds, lambda seed: seed // A_SPOOL)]
        for each in processes.map(damage_at_random, spools):
            findings.add(each)
    _show(findings.faults[:20])
    yield Figure("random damages", findings.sum("damages"), "damages", aim=2_000)
    yield none("damages with a silent loss", findings.sum("silent"), "damages")
    yield none("damages with an invented event", findings.sum("invented"), "damages")
    yield none("damages after which it does not start", findings.sum("failed"), "damages")
    note = f"at most {findings.reported:,} by the reports"
    yield Figure("events lost by damages", findings.lost, "events", note=note)
    for kind in DAMAGES:
        yield from _of_kind(kind, findings)


def _of_kind(kind: str, findings: DamageFindings) -> Iterator[Figure]:
    counts = findings.counts
    opened = counts[kind, "damages"] - counts[kind, "failed"]
    unknown = counts[kind, "without a number"]
    note = "a part of both: the note of the last commit was damaged" if unknown else ""
    yield Figure(f"{kind}: opened", opened, "damages", aim=counts[kind, "damages"])
    yield Figure(f"{kind}: nothing lost", counts[kind, "lossless"], "damages")
    yield Figure(f"{kind}: lost and reported", counts[kind, "reported"], "damages")
    yield Figure(f"{kind}: reported without a number", unknown, "damages", note=note)
    yield none(f"{kind}: silently lost", counts[kind, "silent"], "damages")
    yield none(f"{kind}: invented", counts[kind, "invented"], "damages")


def _show(problems: list[str]) -> None:
    for problem in problems:
        print(problem[:700], file=sys.stderr)


def _run(seed: int, number: int) -> Findings:
    with tempfile.TemporaryDirectory() as scratch:
        calls = record_run(Path(scratch) / "device", seed, _COMMITS)
    return cut_everywhere(calls, number, seed)


BENCHMARK = Benchmark(
    "crash",
    {"cuts": cuts, "damages": damages},
    clock="no clock: cuts and damages counted",
    options={
        "--cuts": {"type": int, "default": 10_000},
        "--damages": {"type": int, "default": 2_000},
        "--seed": {"type": int, "default": 1},
        "--kind": {"choices": DAMAGES, "help": "damages of this kind only (default: each in turn)"},
    },
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
