"""`python -m lab.demo`: the main job. Exit status 0 when nothing was lost, 1 if not, 2 for wrong usage."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from rich.console import Console

from eventplane.errors import EventPlaneError
from lab.cloud import ROOT
from lab.demo.run import DemoOptions, run
from lab.errors import LocalError
from lab.input import DEFAULT_EVENTS, DEFAULT_HOMES, open_input, read_bound
from lab.input.model import InputBoundError, InputError
from lab.process import run_lock

OUTPUT = ROOT / "build" / "demo"


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m lab.demo", description="The whole plane on one machine.")
    parser.add_argument("--data", type=Path, help="folder of the real data sets; the simulator without it")
    parser.add_argument("--homes", default=str(DEFAULT_HOMES), help="how many homes, or 'all'")
    parser.add_argument("--events", default=str(DEFAULT_EVENTS), help="how many events, or 'all'")
    parser.add_argument("--seed", type=int, default=1, help="of the simulator")
    arguments = parser.parse_args()
    console = Console()
    try:
        with run_lock(OUTPUT / "lock"):
            # The clients report each fault that they notice, which would bury the progress bars.
            logging.basicConfig(filename=OUTPUT / "demo.log", filemode="w", level=logging.INFO)
            source = open_input(
                arguments.data,
                read_bound("HOMES", arguments.homes),
                read_bound("EVENTS", arguments.events),
                arguments.seed,
            )
            label = str(arguments.data) if arguments.data else "simulator"
            summary = run(DemoOptions(source, label, arguments.seed, OUTPUT), console)
    except InputBoundError as error:
        _complain(error, console)
        return 2
    except (InputError, LocalError, EventPlaneError) as error:
        _complain(error, console)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; everything that was started has ended")
        return 130
    for name in ("summary.json", "report.html", "run/audit/audit.html"):
        console.print(f"  {OUTPUT / name}")
    return 0 if summary["verdict"] == "passed" else 1


def _complain(error: Exception, console: Console) -> None:
    # A path may hold brackets, which are no markup.
    console.print(str(error), style="red", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
