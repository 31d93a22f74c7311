"""`python -m benchmarks.downlink`: the way down in the local cloud; writes build/bench/downlink.json."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.downlink import idle, runs
from benchmarks.downlink.meter import DownlinkMeter
from benchmarks.downlink.site import Site
from benchmarks.results import Figure, machine_load, write
from local.demo.plane import deploy_plane
from local.emulator import start_emulator
from local.process import Supervisor
from tests.integration.downlink import Home, Plane, running_home

HOW = (
    "wall clock; emulator, functions, forwarders and meter share the machine; requests counted by the meter "
    "and in the emulator's log, functions priced for as long as they ran here; without the archive's writer"
)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.downlink")
    parser.add_argument("--homes", type=int, default=2, help="devices, a forwarder process each")
    parser.add_argument("--updates", type=int, default=200, help="of the throughput run")
    parser.add_argument("--probes", type=int, default=60, help="of the latency run")
    parser.add_argument("--seconds", type=float, default=20, help="of each coalescing run")
    options = parser.parse_args()
    load = machine_load()
    with tempfile.TemporaryDirectory() as name, Supervisor(Path(name) / "run") as supervisor:
        figures = _figures(supervisor, Path(name), options)
    figures.append(load)
    arguments = (f"--{name} {value:g}" for name, value in vars(options).items())
    write("downlink", figures, f"python -m benchmarks.downlink {' '.join(arguments)}", HOW)


def _figures(supervisor: Supervisor, directory: Path, options: argparse.Namespace) -> list[Figure]:
    cloud = start_emulator(supervisor)
    plane = deploy_plane(supervisor, cloud)
    with DownlinkMeter(cloud.url) as meter:
        site = Site(plane, meter, supervisor.run_dir / "emulator.log")
        site.connect()
        with ExitStack() as stack:
            homes: list[Home] = []
            for name in (f"bench-{number}" for number in range(options.homes)):
                site.register(name)
                running = running_home(Plane(cloud, plane.outputs), supervisor, directory / name, name)
                homes.append(stack.enter_context(running))
                site.until(name, is_present=True)
            runs.burst(site, homes, 20)  # for the cold starts, which are not what an average update meets
            figures = [
                *runs.burst(site, homes, options.updates),
                *runs.single(site, homes, options.probes),
                *runs.coalescing(site, homes[0], options.seconds),
            ]
        # With no device there, whose reports would be counted.
        return [*figures, *idle.figures(site)]


if __name__ == "__main__":
    main()
