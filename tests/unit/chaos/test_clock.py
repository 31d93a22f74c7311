"""A wall clock that jumps while a process reads it, beside clocks that do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.chaos.clock import FakeClock

PROGRAM = """
import sys, time
while sys.stdin.readline():
    print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""


def test_only_the_wall_clock_jumps(tmp_path: Path) -> None:
    clock = FakeClock.found(tmp_path / "clock")
    if clock is None:
        pytest.skip("libfaketime is not installed")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **clock.environment, "FAKETIME_NO_CACHE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def ask() -> tuple[float, float]:
        program.stdin.write("\n")
        program.stdin.flush()
        wall, boot = map(float, program.stdout.readline().split())
        return wall, boot

    with program:
        before = ask()
        clock.jump(86_400)
        after = ask()
        program.stdin.close()
    assert 86_400 <= after[0] - before[0] < 2 * 86_400
    assert 0 <= after[1] - before[1] < 43_200
