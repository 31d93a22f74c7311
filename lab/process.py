"""Child processes that are ready when `start` returns and gone when the supervisor ends."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Self

from lab.background import Background
from lab.errors import LocalError, ProcessDiedError, ProcessLateError

READY_SECONDS = 30.0
GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.02


class NameTakenError(LocalError):
    """A child of that name, which also names its log, is still running."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a child named {name!r} runs already; give each child its own name")


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The unrequested end of child `name`, started at `started` and found ended at `at` (Unix seconds).

    `status` is its exit status, or minus the number of the signal that ended it.
    """

    name: str
    status: int
    started: float
    at: float


class Child:
    """One program that can be started, ended and started again. Made by `Supervisor.start`.

    It runs in its own session, so that a Ctrl-C in the terminal reaches only us, and every signal goes to
    its whole process group, so that its own children go with it.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        spawner: ThreadPoolExecutor,
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        ready: Callable[[], bool] | str | None,
        ready_seconds: float,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
        self._spawner = spawner
        self._env = None if env is None else dict(env)
        self._cwd = cwd
        self._ready = ready
        self._ready_seconds = ready_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._started = 0.0
        self._log_began = 0
        self._was_asked = False
        self._ends: list[ChildExit] = []
        # One thread may kill it while another restarts it.
        self._lock = threading.RLock()

    @property
    def running(self) -> bool:
        """True if the program runs. False as soon as it has ended for any reason."""
        with self._lock:
            return self._process is not None and not self._ended(0)

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself."""
        with self._lock:
            return self._process is not None and not self._was_asked and self._ended(0)

    @property
    def ends(self) -> Sequence[ChildExit]:
        """Each time that it ended by itself."""
        with self._lock:
            return [*self._ends, self._end()] if self.has_ended else list(self._ends)

    @property
    def pid(self) -> int | None:
        """The process id while started, else None."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the program and return when it is ready; nothing if it already runs.

        Raises `ProcessDiedError`, `ProcessLateError` if it ended before, or was not in time and was ended.
        """
        if not self.launch():
            return
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> bool:
        """Start the program, without waiting until it is ready; False if it already runs."""
        with self._lock:
            if self.running:
                return False
            self._reap()
            self._started, self._was_asked = time.time(), False
            self._process = self._spawner.submit(self._spawn).result()
            self._pidfd = os.pidfd_open(self._process.pid)
            return True

    def revive(self) -> None:
        """Launch it again if it has ended by itself."""
        with self._lock:
            if self.has_ended:
                self._signal(signal.SIGKILL)  # what it left in its group
                self.launch()

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask it to end (SIGTERM), and end it (SIGKILL) if it still runs after `grace_seconds`."""
        self.terminate()
        if self._process is not None:
            self._ended(grace_seconds)
        self.kill()

    def wait(self) -> int:
        """Wait until it ends by itself; its exit status, or minus the number of the signal that ended it."""
        if self._process is not None:
            self._ended(None)
        return self._reap()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM), without waiting."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as `kill -9` does, with every process that it left in its group."""
        with self._lock:
            self._signal(signal.SIGKILL)
            self._reap()

    def restart(self) -> None:
        """Stop it if it runs, and start it again with the same command, environment and log."""
        self.stop()
        self.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self._log_began = log.tell()
            return subprocess.Popen(
                self._argv,
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._ready_seconds
        while not self._is_ready():
            if self._ended(_POLL_SECONDS):
                raise ProcessDiedError(self.name, self._reap(), self.log)
            if time.monotonic() >= deadline:
                raise ProcessLateError(self.name, self._ready_seconds, self.log)

    def _is_ready(self) -> bool:
        if not isinstance(self._ready, str):
            return self._ready is None or self._ready()
        with self.log.open("rb") as log:
            log.seek(self._log_began)
            return self._ready.encode() in log.read()

    def _ended(self, seconds: float | None) -> bool:
        # Not reaped yet, so its process id, and that of its group, cannot be reused.
        return wait_for_end(self._pidfd, seconds)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None:
                self._was_asked = self._was_asked or self.running
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _end(self) -> ChildExit:
        """Return its unrequested end, without reaping it."""
        how = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        assert how is not None  # noqa: S101 - without WNOHANG it waits
        status = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        return ChildExit(self.name, status, self._started, time.time())

    def _reap(self) -> int:
        """Collect the ended (or just killed) program; its exit status, or minus the signal's number."""
        with self._lock:
            if self._process is None:
                return 0
            self._ends = list(self.ends)
            returncode = self._process.wait()
            os.close(self._pidfd)
            self._process, self._pidfd = None, -1
            return returncode


class Supervisor:
    """Starts children and ends every one of them when its `with` block ends, however it ends.

    Normal end, error, Ctrl-C and SIGTERM all lead through `stop_all`. If this very process is killed with
    SIGKILL, the kernel ends the children that were ready. A child writes to `<run_dir>/<name>.log`.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._children: dict[str, Child] = {}
        # The kernel's "signal when the parent dies" counts the parent's *thread*: a child started by a
        # short-lived thread would die with it. So one thread, as old as the supervisor, starts them all.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
        self._previous_sigterm: object = None

    def __enter__(self) -> Self:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if _in_main_thread():
            self._previous_sigterm = signal.signal(signal.SIGTERM, _exit_on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        with _deaf_to_signals():
            self.stop_all()
            self._spawner.shutdown()
        if _in_main_thread():
            signal.signal(signal.SIGTERM, self._previous_sigterm)  # type: ignore[arg-type]

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: Callable[[], bool] | str | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> Child:
        """Start the program `argv`, in our own environment and directory or others, and return it when ready.

        `name` names the child and its log. `ready` is asked every 20 ms, or is a text that the program logs
        at each start when it is ready; None: at once. Raises `NameTakenError` while a child of that name
        runs, and what `Child.start` raises.
        """
        former = self._children.get(name)
        if former is not None and former.running:
            raise NameTakenError(name)
        if former is not None:
            former.kill()  # collects what ended by itself
            del self._children[name]  # the newest is last in the order of starting
        log = self.run_dir / f"{name}.log"
        child = Child(
            name, argv, log, self._spawner, env=env, cwd=cwd, ready=ready, ready_seconds=ready_seconds
        )
        self._children[name] = child
        child.start()
        return child

    def is_running(self, name: str) -> bool:
        """Return whether a child of that name was started and has not ended."""
        return name in self._children and self._children[name].running

    def stop_all(self) -> None:
        """End every child, the youngest first.

        All are asked before the first is waited for, so the whole takes one grace period at most.
        """
        youngest_first = list(reversed(self._children.values()))
        for child in youngest_first:
            child.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for child in youngest_first:
            child.stop(max(0.0, deadline - time.monotonic()))


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _deaf_to_signals() -> Iterator[None]:
    """Ignore a second Ctrl-C or a closed terminal during the clean-up, which is bounded in time."""
    if not _in_main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


RESTART_S: Final = 5.0
"""`RestartSec` of the forwarder's unit."""

_RESTART_POLL_S: Final = 0.1


class Restarter(Background):
    """Restart those of `children` that end by themselves while its `with` block runs, `RESTART_S` later."""

    def __init__(self, children: Sequence[Child]) -> None:
        super().__init__("restarter")
        self._children = children

    @property
    def ends(self) -> Sequence[ChildExit]:
        """The unrequested ends of all children."""
        return [end for child in self._children for end in child.ends]

    def _run(self) -> None:
        due: dict[Child, float] = {}
        while not self._ending.wait(_RESTART_POLL_S):
            for child in self._children:
                if not child.has_ended:
                    due.pop(child, None)
                elif time.monotonic() >= due.setdefault(child, time.monotonic() + RESTART_S):
                    child.revive()


class RunningError(LocalError):
    """Another run, the process `pid`, holds the lock at `path`."""

    def __init__(self, path: Path, pid: str) -> None:
        self.path, self.pid = path, pid
        super().__init__(
            f"the same runs in this checkout already (process {pid}): wait for it, or stop it first"
        )


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, so that a second run cannot overwrite the files of the first.

    Makes the folder. Raises `RunningError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RunningError(path, lock.read().strip()) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


_KILLED_S: Final = 10.0
"""How long to wait for the end of a killed process."""


def kill_by_environment(is_meant: Callable[[Mapping[str, str]], bool]) -> int:
    """Kill every other process whose environment variables are meant, and return how many have ended."""
    ending = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid() or not is_meant(_environment(folder)):
            continue
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            ending.append(process)
            if is_meant(_environment(folder)):  # not a new process that got the number since
                signal.pidfd_send_signal(process, signal.SIGKILL)
    for process in ending:
        wait_for_end(process, _KILLED_S)
        os.close(process)
    return len(ending)


def wait_for_end(pidfd: int, seconds: float | None) -> bool:
    """Wait up to `seconds` (None: without limit) for the end of a process, which is not reaped."""
    poller = select.poll()  # unlike select(), not limited to 1,024 open files
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1_000))


def _environment(process: Path) -> dict[str, str]:
    try:
        text = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}  # it has ended, or belongs to another user
    return dict(each.partition("=")[::2] for each in text.split("\0"))
