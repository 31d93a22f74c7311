"""A memory cgroup around a process, of cgroup v1 or v2, where the machine lets us make one."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class MemoryLimit:
    """At most `mib` MiB of memory for the processes that `command` starts. Use it in a `with` block.

    Without the right to make a cgroup there is no limit; `note` says so.
    """

    def __init__(self, name: str, mib: int) -> None:
        self._mib = mib
        # Process accounting has v1 and v2 mounted side by side on some machines: v1 then has the memory.
        is_v1 = (V1 / "memory.limit_in_bytes").exists()
        self._folder = (V1 if is_v1 else V2) / f"eventplane-{name}-{os.getpid()}"
        self._limit, self._events = (
            ("memory.limit_in_bytes", "memory.oom_control") if is_v1 else ("memory.max", "memory.events")
        )
        self.applies = False

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
            (self._folder / self._limit).write_text(str(self._mib * 1024**2))
            self.applies = True
        except OSError:
            self._remove()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def command(self) -> tuple[str, ...]:
        """The start of the command that starts a program within the limit."""
        if not self.applies:
            return ()
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"))

    @property
    def kills(self) -> int:
        """How many processes the kernel killed for the limit."""
        if not self.applies:
            return 0
        found = re.search(r"(?m)^oom_kill (\d+)$", (self._folder / self._events).read_text())
        return int(found[1]) if found else 0

    @property
    def note(self) -> str:
        """What holds, for a figure."""
        if not self.applies:
            return "without a memory limit, which this machine does not allow"
        return f"in a memory cgroup of {self._mib} MiB, killed {self.kills} times"

    def _remove(self) -> None:
        # After a failed run its processes may still be in there; the supervisor ends them later.
        with contextlib.suppress(OSError):
            self._folder.rmdir()
