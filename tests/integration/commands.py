"""The operator's command line, in the emulated cloud."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from local.cloud import CloudEndpoint

ROOT = Path(__file__).parents[2]


def run(
    cloud: CloudEndpoint, *words: str, program: tuple[str, ...] = ("-m", "eventplane")
) -> subprocess.CompletedProcess[str]:
    """Run `eventplane` with `words`; `program` may name another way to start it, or another module."""
    return subprocess.run(
        [sys.executable, *program, *words],
        env={**cloud.environment(), "EVENTPLANE_ENV": "local"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def output_of(cloud: CloudEndpoint, *words: str, program: tuple[str, ...] = ("-m", "eventplane")) -> str:
    """What a command prints that has to succeed."""
    done = run(cloud, *words, program=program)
    assert done.returncode == 0, done.stderr
    return done.stdout
