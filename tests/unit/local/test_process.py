from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.errors import ProcessDiedError, ProcessLateError
from local.process import NameTakenError, Restarter, Supervisor
from tests.eventually import eventually

SLEEPER = ["sleep", "60"]
STUBBORN = [
    sys.executable,
    "-c",
    "import pathlib, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path(sys.argv[1]).touch(); signal.pause()",
]
PARENT = [
    sys.executable,
    "-c",
    "import pathlib, subprocess, sys; child = subprocess.Popen(['sleep', '60']);"
    "part = pathlib.Path(sys.argv[1] + '.part'); part.write_text(str(child.pid)); part.rename(sys.argv[1]);"
    "child.wait()",
]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path) as it:
        yield it


def test_death_before_ready_shows_the_end_of_the_log(supervisor: Supervisor) -> None:
    with pytest.raises(ProcessDiedError, match="port is taken") as caught:
        supervisor.start("broken", ["sh", "-c", "echo port is taken; exit 7"], ready=lambda: False)

    assert (caught.value.name, caught.value.returncode) == ("broken", 7)


def test_late_child_is_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(ProcessLateError) as caught:
        supervisor.start(
            "slow",
            ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"],
            ready=lambda: False,
            ready_seconds=0.2,
        )

    assert caught.value.seconds == 0.2
    assert not alive(int(pid_file.read_text()))


def test_a_line_of_an_earlier_start_makes_no_child_ready(supervisor: Supervisor, tmp_path: Path) -> None:
    once = f"[ -e {tmp_path}/once ] && exit 3; touch {tmp_path}/once; echo it stands; exec sleep 60"
    child = supervisor.start("once", ["sh", "-c", once], ready="it stands")
    child.kill()

    with pytest.raises(ProcessDiedError) as caught:
        child.start()

    assert caught.value.returncode == 3


def test_an_end_that_nobody_asked_for_is_reported(supervisor: Supervisor, tmp_path: Path) -> None:
    first_fails = f"[ -e {tmp_path}/once ] && exec sleep 60; touch {tmp_path}/once; exit 5"
    child = supervisor.start("first-fails", ["sh", "-c", first_fails])
    assert eventually(lambda: child.has_ended)
    assert [each.status for each in child.ends] == [5]

    child.revive()
    assert child.running
    child.stop()

    assert not child.has_ended
    assert [(each.name, each.status) for each in child.ends] == [("first-fails", 5)]


def test_a_kill_of_what_had_ended_by_itself_hides_nothing(supervisor: Supervisor) -> None:
    child = supervisor.start("shot", SLEEPER)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGTERM)
    assert eventually(lambda: child.has_ended)

    child.kill()
    child.revive()

    assert not child.running
    assert [each.status for each in child.ends] == [-signal.SIGTERM]


def test_restart_replaces_the_process(supervisor: Supervisor) -> None:
    child = supervisor.start("sleeper", SLEEPER)
    first = child.pid
    assert first is not None

    child.restart()

    assert child.running
    assert not alive(first)


def test_child_that_ignores_the_request_is_killed_after_the_grace(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    child = supervisor.start("stubborn", [*STUBBORN, str(deaf)], ready=deaf.exists)
    pid = child.pid
    assert pid is not None

    child.stop(grace_seconds=0.1)

    assert not alive(pid)


def test_kill_takes_the_grandchildren_too(supervisor: Supervisor, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = supervisor.start("parent", [*PARENT, str(pid_file)], ready=pid_file.exists)
    grandchild = int(pid_file.read_text())
    assert alive(grandchild)

    child.kill()

    assert eventually(lambda: not alive(grandchild))


def test_a_name_is_free_again_when_its_child_has_ended(supervisor: Supervisor) -> None:
    supervisor.start("one", SLEEPER)
    with pytest.raises(NameTakenError):
        supervisor.start("one", SLEEPER)

    supervisor.start("two", ["true"]).wait()
    assert supervisor.start("two", SLEEPER).running


def test_a_child_outlives_the_thread_that_asked_for_it(supervisor: Supervisor) -> None:
    with ThreadPoolExecutor(max_workers=1) as short_lived:
        child = short_lived.submit(supervisor.start, "sleeper", SLEEPER).result()

    assert child.running


class OnPurposeError(Exception):
    pass


def test_an_error_ends_every_child(tmp_path: Path) -> None:
    pids: list[int | None] = []

    def run() -> None:
        with Supervisor(tmp_path) as supervisor:
            pids.extend(supervisor.start(name, SLEEPER).pid for name in ("one", "two", "three"))
            raise OnPurposeError

    with pytest.raises(OnPurposeError):
        run()

    assert len(pids) == 3
    assert not [pid for pid in pids if pid is not None and alive(pid)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_children_end_with_a_signalled_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import pathlib, signal, sys; from local.process import Supervisor\n"
        "up = pathlib.Path(sys.argv[1]) / 'up'; sleeper = ['sh', '-c', f'touch {up}; exec sleep 60']\n"
        # A shell lets its background jobs ignore Ctrl-C; this one shall hear it wherever the tests run.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Supervisor(up.parent) as supervisor:\n"
        "    print(supervisor.start('sleeper', sleeper, ready=up.exists).pid, flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)

        os.kill(parent.pid, number)
        try:
            parent.wait(timeout=10)
        finally:
            parent.kill()

    assert eventually(lambda: not alive(pid))


def test_what_ended_by_itself_runs_again(tmp_path: Path) -> None:
    first_fails = f"[ -e {tmp_path}/once ] && exec sleep 60; touch {tmp_path}/once; exit 5"
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("first-fails", ["sh", "-c", first_fails])
        killed = supervisor.start("killed", ["sleep", "60"])
        with Restarter([child, killed], pause_s=0.0) as restarter:
            killed.kill()
            assert eventually(lambda: child.running and bool(child.ends))
            assert [(end.name, end.status) for end in restarter.ends] == [("first-fails", 5)]
            assert not killed.running
