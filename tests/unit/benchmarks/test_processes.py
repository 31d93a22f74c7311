"""A process at a function's share of a core, and work in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.processes import Channel, ControlGroup, Worker, until_stopped

_WORK = """
import sys, time
if sys.argv[1]:
    with open(sys.argv[1], "w") as procs: procs.write(str(__import__("os").getpid()))
began, cpu = time.monotonic(), time.process_time()
while time.process_time() - cpu < 0.05: pass
print(time.monotonic() - began)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_a_process_gets_no_more_than_its_share() -> None:
    with ControlGroup.cpu(0.2) as group:
        if not group.applies:
            pytest.skip("this machine has no control groups to write to")
        done = subprocess.run(
            [sys.executable, "-c", _WORK, str(group.members)], capture_output=True, text=True, check=True
        )
    # A bound from below: however busy the machine is, the group holds it back.
    assert float(done.stdout) > 0.05 / 0.2 * 0.6
    assert not group.members.exists()


def wait_for_the_end(channel: Channel, first: str) -> None:
    stopped = until_stopped()
    channel.send(first)
    while not stopped.is_set():
        channel.poll(0.01)
    channel.send(7)


def end_at_once(_: Channel) -> None:
    """Sends nothing."""


def test_a_worker_sends_what_it_has_when_it_is_stopped() -> None:
    with Worker(wait_for_the_end, "begun") as worker:
        assert worker.receive(str) == "begun"
        assert not worker.has_ended
        assert worker.stop(int) == 7


def test_a_worker_is_stopped_after_its_time() -> None:
    with Worker(wait_for_the_end, "begun") as worker:
        worker.receive(str)
        assert worker.receive(int, within_s=0.0) == 7


def test_a_worker_that_ends_without_its_message_is_an_error() -> None:
    with Worker(end_at_once) as worker, pytest.raises(SystemExit, match="ended early"):
        worker.receive(int)
