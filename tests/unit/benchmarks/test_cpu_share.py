"""A process at a function's share of a core."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.cloud.cpu_share import cpu_share, share_of

_WORK = """
import sys, time
if sys.argv[1]:
    with open(sys.argv[1], "w") as procs: procs.write(str(__import__("os").getpid()))
began, cpu = time.monotonic(), time.process_time()
while time.process_time() - cpu < 0.2: pass
print(time.monotonic() - began)
"""


def test_a_function_has_a_whole_vcpu_at_1769_mib() -> None:
    assert share_of(1_769) == 1
    assert share_of(512) == pytest.approx(0.289, abs=0.001)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_a_process_gets_no_more_than_its_share() -> None:
    with cpu_share(0.2) as procs:
        if procs is None:
            pytest.skip("this machine has no control groups to write to")
        done = subprocess.run(
            [sys.executable, "-c", _WORK, str(procs)], capture_output=True, text=True, check=True
        )
        folder = procs.parent
    # A bound from below: however busy the machine is, the group holds it back.
    assert float(done.stdout) > 0.2 / 0.2 * 0.8
    assert not folder.exists()
