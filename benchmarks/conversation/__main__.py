"""`python -m benchmarks.conversation`: request and reply; writes build/bench/conversation.json."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.conversation import runs
from benchmarks.results import Figure, write
from contract import load_contract
from local.demo.plane import deploy_plane
from local.emulator import start_emulator
from local.process import Supervisor
from tests.integration import downlink

HOME = "conversation"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conversation")
    parser.add_argument("--requests", type=int, default=300, help="on the device")
    parser.add_argument(
        "--across", type=int, default=50, help="of each kind through the local cloud; 0: none"
    )
    options = parser.parse_args()
    # On a disk, not in memory: what a sync costs is part of it.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, Supervisor(Path(name) / "run") as supervisor:
        found = runs.on_the_device(supervisor, _folder(name, "device"), options.requests)
        if options.across:
            found += _across(supervisor, Path(name), options.across)
    command = f"python -m benchmarks.conversation --requests {options.requests} --across {options.across}"
    write("conversation", found, command, "wall clock")


def _across(supervisor: Supervisor, directory: Path, requests: int) -> list[Figure]:
    plane = deploy_plane(supervisor, start_emulator(supervisor))
    os.environ.update(plane.cloud.environment())
    contract = directory / "contract.json"
    contract.write_bytes(load_contract().canonical)
    register = [sys.executable, "-m", "eventplane", "fleet", "register", HOME, "--env", "local"]
    subprocess.run(register, check=True, capture_output=True)
    seen = downlink.Plane(plane.cloud, plane.outputs)
    with downlink.running_home(seen, supervisor, directory / HOME, HOME) as home:
        return [
            *runs.from_the_cloud(home, contract, requests),
            *runs.from_a_home(home, requests),
        ]


def _folder(parent: str, name: str) -> Path:
    folder = Path(parent) / name
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
