"""`python -m lab.archive_generator build/archive --events 1000000`: an archive, and beside it the truth."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter

from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate


def main() -> None:
    """Generate, and print what was written."""
    parser = argparse.ArgumentParser(prog="python -m lab.archive_generator", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--fault-every", type=int, default=200, help="events; 0 plants nothing")
    parser.add_argument("--trouble-every", type=int, default=25, help="devices; 0 gives none any trouble")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    plan = Scale(
        events=arguments.events,
        hours=arguments.hours,
        fault_every=arguments.fault_every,
        trouble_every=arguments.trouble_every,
        seed=arguments.seed,
    )
    began = perf_counter()
    written = generate(arguments.folder, plan, audited_contracts())
    print(json.dumps({**written, "seconds": round(perf_counter() - began, 1)}, indent=2))


if __name__ == "__main__":
    main()
