"""Processes: what one has used, how it is held to a limit, and a function that runs in one of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from lab.process import Supervisor

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EVERY_S: Final = 0.1
_GROUPS: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 20_000
_SPAWN: Final = multiprocessing.get_context("spawn")


@contextmanager
def scratch() -> Iterator[tuple[Path, Supervisor]]:
    """Yield a directory on a disk, and a supervisor of processes that ends them with the block.

    /tmp may be memory, where written bytes count as none and a sync is free.
    """
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as name, Supervisor(Path(name) / "run") as supervisor:
        yield Path(name), supervisor


def cpu_s(pid: int, *, with_ended: bool = False) -> float:
    """Return the user and system time of a process, and of its children that have ended, seconds."""
    # Behind the name, which may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICKS


def rss_mib(pid: int, *, roughly: bool = False) -> float:
    """Return the resident memory of a process, MiB; `roughly` costs a large process no time."""
    file, name = ("status", "VmRSS:") if roughly else ("smaps_rollup", "Rss:")
    return _kilobytes(Path(f"/proc/{pid}/{file}"), name) / 1024


def children(pid: int) -> list[int]:
    """Return the ids of the running processes that a process started itself."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


@dataclass(frozen=True, slots=True)
class Measured:
    """Use of a process tree: `seconds` on the clock, `cpu_s` on all cores, `peak_mib` of resident memory."""

    seconds: float
    cpu_s: float
    peak_mib: float


def measured(command: list[str], environment: dict[str, str]) -> Measured:
    """Run `command` and what it starts. Raises `subprocess.CalledProcessError`."""
    began = monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    peaks, used = [0.0], [0.0]
    while (status := process.poll()) is None:
        used.append(_of_tree(partial(cpu_s, with_ended=True), process.pid))
        peaks.append(_of_tree(partial(rss_mib, roughly=True), process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EVERY_S)
    if status:
        raise subprocess.CalledProcessError(status, command)
    return Measured(monotonic() - began, max(used), max(peaks))


def _of_tree(of_one: Callable[[int], float], pid: int) -> float:
    """Return the sum over a process and all that it started; what has ended meanwhile counts as 0."""
    own = 0.0
    with contextlib.suppress(OSError, StopIteration):
        own = of_one(pid)
    return own + sum(_of_tree(of_one, child) for child in children(pid))


def peak_rss_mib(pid: int) -> float:
    """Return the peak of resident memory of a process, MiB."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") / 1024


def written_bytes(pid: int) -> int:
    """Return the bytes that a process wrote to storage; 0 on a file system in memory."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["write_bytes"])


def _kilobytes(file: Path, name: str) -> int:
    line = next(each for each in file.read_text().splitlines() if each.startswith(name))
    return int(line.split()[1])


class ControlGroup:
    """Holds the processes that join it to a limit, in a `with` block that they should not outlive.

    `v1` and `v2` are its settings by the version of control groups. Without the right to make one (root has
    it) `applies` is false, and nothing is limited.
    """

    def __init__(self, controller: str, v1: Mapping[str, str], v2: Mapping[str, str]) -> None:
        # Some machines have both versions mounted: v1 then has the controllers.
        is_v1 = (_GROUPS / controller).is_dir()
        parent = _GROUPS / controller if is_v1 else _GROUPS
        self._folder = parent / f"eventplane-{controller}-{os.getpid()}"
        self._settings = v1 if is_v1 else v2
        self.applies = False

    @classmethod
    def memory(cls, mib: int) -> ControlGroup:
        """Processes that have `mib` MiB together."""
        size = str(mib * 1024**2)
        return cls("memory", {"memory.limit_in_bytes": size}, {"memory.max": size})

    @classmethod
    def cpu(cls, share: float) -> ControlGroup:
        """Processes that have `share` of a core together."""
        quota = str(round(share * _PERIOD_US))
        v1 = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}
        return cls("cpu", v1, {"cpu.max": f"{quota} {_PERIOD_US}"})

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
            for name, value in self._settings.items():
                (self._folder / name).write_text(value)
            self.applies = True
        except OSError:
            self._remove()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    @property
    def members(self) -> Path:
        """The file to which a process writes its id to join."""
        return self._folder / "cgroup.procs"

    @property
    def command(self) -> tuple[str, ...]:
        """The start of the command that starts a program within the limit."""
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.members)) if self.applies else ()

    @property
    def kills(self) -> int:
        """Return the number of processes that the kernel killed for their memory."""
        for name in ("memory.oom_control", "memory.events"):
            if (events := self._folder / name).exists():
                found = re.search(r"(?m)^oom_kill (\d+)$", events.read_text())
                return int(found[1]) if found else 0
        return 0

    def _remove(self) -> None:
        # After a failed run its processes may still be in there; the supervisor ends them later.
        with contextlib.suppress(OSError):
            self._folder.rmdir()


class Worker:
    """Runs `work(connection, *arguments)` in a process of its own while in its `with` block.

    So it does not share a core's time with the run that starts it. What it sends over the connection is
    what `receive` returns; it should end soon after SIGTERM (`until_stopped`).
    """

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    @property
    def has_ended(self) -> bool:
        """True if it has done its work."""
        return self._process.exitcode is not None

    def receive(self, wanted: type, within_s: float | None = None) -> Any:
        """Return the next message of the type `wanted`; after `within_s` seconds the work is stopped."""
        deadline = None if within_s is None else monotonic() + within_s
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._connection.poll(left):
                self._process.terminate()
                deadline = None
            try:
                message = self._connection.recv()
            except EOFError:
                raise SystemExit(f"{self._process.name} ended early; its error is above") from None
            if isinstance(message, wanted):
                return message

    def stop(self, wanted: type) -> Any:
        """Stop the work; return the next message of the type `wanted`."""
        self._process.terminate()
        return self.receive(wanted)


def until_stopped() -> threading.Event:
    """Return an event that is set when this process gets SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return stopped


Channel = Connection
"""Over which the work of a `Worker` sends its messages."""
