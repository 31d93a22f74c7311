"""`python -m lab.rollout`: exit status 0 if each harmful change is stopped in time, and no harmless one."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from lab.benchmarks.results import Figure, write
from lab.histories.search import shipped
from lab.rollout.changes import HARMFUL, HARMLESS, UNNOTICED, UNSEEN
from lab.rollout.trial import Trial, TrialFleet, Tried, compared, tried

OUTPUT: Final = Path("build/chaos")


def main() -> int:
    """Roll all changes out, print how each ended, and write the figures."""
    arguments = _arguments()
    trial = Trial(seed=arguments.seed)
    names = [*[*HARMFUL][:: arguments.every], *[*HARMLESS][:: arguments.every]]
    found: list[Tried] = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        for each in pool.map(partial(tried, trial), names):
            mark, result = "" if each.is_right else "WRONG: ", each.result
            at = f"{result.phase} at {result.reached:g} %"
            print(f"{mark}{result.name}: {at}; {'; '.join(result.why[:2])}", flush=True)
            found.append(each)
    harmful, harmless = (
        [each for each in found if each.result.name in those] for those in (HARMFUL, HARMLESS)
    )
    wrong = [each.result.name for each in (*harmful, *harmless) if not each.is_right]
    missed, noticed = compared()
    wrong += [*missed, *noticed]
    ran = f"{len(TrialFleet(trial, shipped(), shipped()).running)} of {trial.homes} homes run"
    at = ", ".join(f"{each.result.name}: {'; '.join(each.result.findings)}" for each in harmful)
    figures = [
        Figure(
            "harmful changes stopped within 5 % of homes",
            sum(each.is_right for each in harmful),
            "changes",
            len(harmful),
            note=f"{ran}; by the gates alone, without proof and rehearsal: {at}",
            required=True,
        ),
        Figure(
            "harmful changes that the comparison refuses before",
            sum(each.is_refused for each in harmful),
            "changes",
        ),
        Figure(
            "harmful changes that no event shows and the comparison refuses",
            len(UNSEEN) - len(missed),
            "changes",
            len(UNSEEN),
            note=f"of {len(UNNOTICED)} harmless ones {len(noticed)}",
            required=True,
        ),
        Figure(
            "harmless changes stopped",
            sum(not each.is_right for each in harmless),
            "changes",
            0,
            note=f"of {len(harmless)}, over two stages, 1 % and 5 %",
            required=True,
        ),
        Figure("computing", round(sum(each.cpu_s for each in found)), "CPU-s"),
    ]
    write("rollout", figures, f"python -m lab.rollout {' '.join(sys.argv[1:])}", "virtual time", OUTPUT)
    print(f"wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.rollout", description="Rolls harmful and harmless changes out to simulated homes."
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth change")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the homes' traffic")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
