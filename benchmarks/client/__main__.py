"""`python -m benchmarks.client`: the client library over each backend; writes build/bench/client.json."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.client import backends
from benchmarks.client.runs import figures
from benchmarks.results import write
from local.process import Supervisor


def main() -> None:
    """Measure, print and write."""
    found = []
    # On a disk, not in memory: what a sync costs is part of it.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        directory = Path(name)
        found += figures(backends.memory(directory))
        with Supervisor(directory / "run") as supervisor:
            with backends.mqtt(supervisor, directory) as backend:
                found += figures(backend)
            with backends.sqs(supervisor) as backend:
                found += figures(backend)
    write(
        "client", found, "python -m benchmarks.client", "wall clock; throughput is the median of three runs"
    )


if __name__ == "__main__":
    main()
