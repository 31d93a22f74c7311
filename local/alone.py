"""One run at a time where a second would take away the first one's results."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.errors import LocalError


class RunningError(LocalError):
    """Another run, the process `pid`, holds the lock at `path`."""

    def __init__(self, path: Path, pid: str) -> None:
        self.path, self.pid = path, pid
        super().__init__(
            f"the same runs in this checkout already (process {pid}): wait for it, or stop it first"
        )


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, whose folder is made. Raises `RunningError`."""
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
