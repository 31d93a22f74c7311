"""`python -m lab.chaos SCENARIO`: exit status 0 passed, 1 failed, 2 wrong usage, 130 stopped."""

import argparse
import json
import logging
import shutil
import sys

from eventplane.errors import EventPlaneError
from lab.benchmarks.results import write
from lab.chaos import boots, slow_line
from lab.chaos.run import run
from lab.chaos.scenarios import SCENARIOS, Scenario
from lab.chaos.schedule import ScheduleError
from lab.chaos.verdict import figures, summary
from lab.cloud import ROOT
from lab.errors import LocalError
from lab.process import run_lock

OUTPUT = ROOT / "build" / "chaos"
OF_A_DEVICE = (boots.NAME, slow_line.NAME)
"""Scenarios without the cloud, with figures of their own."""
CLOCK = "wall clock, everything on one machine"


def main() -> int:
    """Run one scenario, print its figures and write them."""
    arguments = _arguments()
    name = arguments.scenario
    try:
        with run_lock(OUTPUT / f"{name}.lock"):
            # The figures of an earlier run must not be taken for this run's if it fails.
            (OUTPUT / f"{name}.json").unlink(missing_ok=True)
            # The clients report each fault that they notice, which would bury the figures.
            logging.basicConfig(filename=OUTPUT / f"{name}.log", filemode="w", level=logging.INFO)
            if name in OF_A_DEVICE:
                return _play_device(arguments)
            return _play(SCENARIOS[name].within(arguments.seconds, arguments.events), arguments)
    except (LocalError, EventPlaneError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ScheduleError) else 1
    except KeyboardInterrupt:
        print("stopped; everything that was started has ended", file=sys.stderr)
        return 130


def _play_device(arguments: argparse.Namespace) -> int:
    name = arguments.scenario
    folder = OUTPUT / name
    more: dict[str, object] = {}
    shutil.rmtree(folder, ignore_errors=True)
    if name == boots.NAME:
        verdict, found = boots.run(arguments.boots, arguments.seed, folder)
        more = {"lost": verdict.lost, "under_another_thing": verdict.under_another}
    else:
        found = slow_line.run(slow_line.LINES, arguments.seed, folder)
    write(name, found, _command(), CLOCK, OUTPUT, more)
    return int(any(each.met is False for each in found))


def _play(scenario: Scenario, arguments: argparse.Namespace) -> int:
    folder = OUTPUT / scenario.name
    outcome = run(scenario, arguments.seed, folder, arguments.faults)
    played = {"scenario": scenario.name, "homes": scenario.homes, "seed": arguments.seed}
    document = summary(outcome, played, loses=scenario.loses)
    (folder / "summary.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    found = figures(outcome, document, loses=scenario.loses)
    more: dict[str, object] = {
        name: document[name] for name in ("outages", "alarms_not_evaluated") if name in document
    }
    write(scenario.name, found, _command(), CLOCK, OUTPUT, more)
    passed = document["verdict"] == "passed"
    print(f"{'passed' if passed else 'FAILED'} with --seed {arguments.seed}: {folder / 'summary.json'}")
    return 0 if passed else 1


def _command() -> str:
    return f"python -m lab.chaos {' '.join(sys.argv[1:])}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos", description="Breaks the plane on purpose.")
    parser.add_argument("scenario", choices=[*SCENARIOS, *OF_A_DEVICE])
    parser.add_argument("--boots", type=int, default=boots.BOOTS, help="of the scenario boots")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--seconds", type=float, help="how long it goes on, faults and sending")
    parser.add_argument("--events", type=int, help="of each home")
    parser.add_argument("--faults", nargs="*", default=(), help="kinds; all without")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
