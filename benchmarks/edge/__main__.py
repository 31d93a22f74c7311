"""`python -m benchmarks.edge`: the forwarder beside Mosquitto's bridge; writes build/bench/edge.json."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.edge import attacks, discovery, runs
from benchmarks.edge.parts import Site
from benchmarks.results import Figure, machine_load, write
from local.process import Supervisor

_RUNS: dict[str, Callable[[Site], list[Figure]]] = {
    "drain": runs.drain,
    "quota": runs.quota,
    "flow": runs.flow,
    "latency": runs.latency,
    "urgent": runs.urgent,
    "memory": runs.memory,
    "home": runs.home,
    "flood": attacks.flood,
    "queued": attacks.queued,
    "waiting": attacks.waiting,
    "topics": attacks.topics,
    "discovery": discovery.memory,
}


def main() -> None:
    """Run the named measurements, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edge")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_RUNS)}")
    names = parser.parse_args().names or list(_RUNS)
    figures = [machine_load()]
    # Beside the results: /tmp may be memory, and bytes written there would count as none.
    scratch = Path(__file__).parents[2] / "build"
    scratch.mkdir(exist_ok=True)
    for name in names:
        with (
            tempfile.TemporaryDirectory(dir=scratch) as directory,
            Supervisor(Path(directory) / "run") as supervisor,
        ):
            figures += _RUNS[name](Site.create(supervisor, Path(directory) / "site"))
    write(
        "edge",
        figures,
        " ".join(["python -m benchmarks.edge", *names]),
        clock="wall clock unless the unit says so",
    )


if __name__ == "__main__":
    main()
