"""One plane at a time; it ends on request, and nothing of a killed one stays."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract import CONTRACT_FILE
from local.deploy import ROOT
from local.process import RunningError
from local.up import __main__ as program
from local.up.folder import MARK, Folder, NotUpError, end_leftovers, stop
from local.up.run import commands_for
from tests.eventually import eventually

HOLD = """
import sys, time
from pathlib import Path
from local.process import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process, which ends with the test at the latest."""
    processes = []

    def run(*command: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        return processes[-1]

    yield run
    for each in processes:
        each.kill()
        each.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "up")


def hold(start: Start, folder: Folder, code: str = HOLD) -> subprocess.Popen[bytes]:
    """Start a process that holds the folder's lock as a plane does."""
    process = start(sys.executable, "-c", code, str(folder.lock))
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    return process


def test_the_processes_of_a_plane_that_has_just_begun_to_start_are_left_alone(
    start: Start, folder: Folder
) -> None:
    hold(start, folder)
    folder.lock.write_text("")  # it has the lock, and has not written its process there
    its_own = start("sleep", "600", **{MARK: str(folder.path)})
    with pytest.raises(RunningError):
        stop(folder)
    assert its_own.poll() is None


def test_a_process_that_is_not_the_plane_s_gets_no_signal(start: Start, folder: Folder) -> None:
    hold(start, folder)
    other = start("sleep", "600")
    with pytest.raises(NotUpError), folder.process(other.pid):
        pytest.fail("it is another process")


def test_processes_of_a_killed_plane_are_ended_and_no_others(start: Start, folder: Folder) -> None:
    left = start("sleep", "600", **{MARK: str(folder.path)})
    others = [start("sleep", "600", **{MARK: f"{folder.path}-2"}), start("sleep", "600")]
    for each in (left, *others):
        # The kernel shows the variables a moment after the program has been started.
        assert eventually(Path(f"/proc/{each.pid}/environ").read_bytes)
    assert end_leftovers(folder) == 1
    assert left.wait(10) == -signal.SIGKILL
    assert [each.poll() for each in others] == [None, None]


def test_the_commands_of_a_plane_are_for_its_folder_and_its_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, meant = Folder(tmp_path / "another plane"), list[Path]()
    for name in ("publish", "stop"):
        monkeypatch.setattr(program, name, lambda folder, *_: meant.append(folder.path))
    commands = commands_for(folder, 1883, tmp_path / "own.yaml")
    for each in (commands["end it all"], commands[f"put a changed {tmp_path / 'own.yaml'} in force"]):
        monkeypatch.setattr(sys, "argv", shlex.split(each)[2:])
        assert program.main() == 0
    assert meant == [folder.path] * 2
    assert commands_for(Folder(), 1883, CONTRACT_FILE)["end it all"] == "make down"
