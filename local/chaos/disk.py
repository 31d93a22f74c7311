"""A disk that can be filled to its last byte: a file system in memory, of a few megabytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DISK: Final = "disk"
"""Where it is mounted, in a home's folder."""

_BLOCK: Final = 4_096
_BALLAST: Final = "ballast"


@dataclass(frozen=True)
class SmallDisk:
    """The disk mounted at `path`."""

    path: Path

    def fill(self) -> None:
        """Leave no room, not even one block."""
        with contextlib.suppress(OSError), (self.path / _BALLAST).open("ab", buffering=0) as file:
            while True:
                file.write(bytes(_BLOCK))

    def empty(self) -> None:
        """Give the room back."""
        (self.path / _BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[SmallDisk | None]:
    """Mount one at `path` while the `with` block runs. None where that is not allowed: it takes root.

    What is on it in the end lies beside it afterwards.
    """
    path.mkdir(parents=True, exist_ok=True)
    unmount(path)  # of a run that was killed
    if not _mounted(path, mebibytes):
        yield None
        return
    disk = SmallDisk(path)
    try:
        yield disk
    finally:
        disk.empty()
        for file in filter(Path.is_file, path.iterdir()):
            shutil.copy2(file, path.parent)
        unmount(path)


def _mounted(path: Path, mebibytes: int) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmount(path: Path) -> None:
    """Take the disk away that is mounted at `path`, if there is one."""
    if path.is_mount():
        subprocess.run(["umount", "--lazy", str(path)], check=False)
