"""`python -m benchmarks.cloud`: the plane in the local cloud; writes build/bench/cloud.json."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import cold_start
from benchmarks.cloud import router_share, runs
from benchmarks.cloud.device import Device
from benchmarks.cloud.functions import peak_memory_mib
from benchmarks.results import Figure, machine_load, write
from local.demo.plane import deploy_plane
from local.emulator import start_emulator
from local.process import Supervisor


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloud")
    parser.add_argument(
        "--events", type=int, default=20_000, help="of each batched run; a tenth of it single"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of the latency run")
    options = parser.parse_args()
    load = machine_load()
    figures = [*router_share.figures(), *cold_start.figures(cold_start.REPEATS), load]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Supervisor(directory / "run") as supervisor:
            figures = _live(supervisor, directory, options) + figures
    command = f"python -m benchmarks.cloud --events {options.events} --runs {options.runs}"
    command += f" --seconds {options.seconds:g}"
    clock = f"wall clock; cold starts: {cold_start.CLOCK}"
    write("cloud", figures, command, clock)


def _live(supervisor: Supervisor, directory: Path, options: argparse.Namespace) -> list[Figure]:
    plane = deploy_plane(supervisor, start_emulator(supervisor))
    with Device(plane, "bench-home", directory) as device, Device(plane, "bench-other", directory) as other:
        # Once before it counts, for the cold starts.
        runs.throughput(plane, device, runs.BATCH, runs.BATCH, 1)
        runs.latency(plane, device, other, runs.BATCH, 1)
        batched = runs.throughput(plane, device, options.events, runs.BATCH, options.runs)
        single = runs.throughput(plane, device, options.events // 10, 1, options.runs)
        load = median(batched.rates) / 2
        delays = runs.latency(plane, device, other, load, options.seconds)
    memory = [
        Figure(f"{name}_warm_memory", mib, "MiB", higher_is_better=False, note="peak after all runs")
        for name, mib in sorted(peak_memory_mib(plane.cloud).items())
    ]
    return [
        batched.figure("events_batched", f"{runs.BATCH} a publish, zlib"),
        single.figure("events_single", "each a publish of its own"),
        *runs.router_time(batched, single),
        *delays,
        *memory,
    ]


if __name__ == "__main__":
    main()
