"""The machine of a forwarder: this machine or an emulated armv7l, a wall clock to set, a disk to fill."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lab.cloud import ROOT
from lab.errors import ToolMissingError

DEVICE: Final = ROOT / "build" / "device"
IMAGE: Final = DEVICE / "eventplane-forwarder.pyz"
USERLAND: Final = DEVICE / "userland"
"""Made by `make device-image` and `lab/tools/device-userland.sh`."""


class ThisMachine:
    """Runs a forwarder from this checkout. `has_clock`: its wall clock can be set apart from ours."""

    has_clock = True

    def folder(self, run_dir: Path, home: str) -> Path:
        """Make the folder of its files. Raises `ToolMissingError`."""
        folder = (run_dir / "homes" / home).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def command(self, settings: Path) -> list[str]:
        """Return what starts it with `settings`, which lie in that folder and name files relative to it."""
        return [sys.executable, "-m", "edge", "--settings", str(settings)]


class ArmUserland(ThisMachine):
    """Runs the device's one file under Debian's armv7l Python, in another root directory; requires root."""

    has_clock = False

    def folder(self, run_dir: Path, home: str) -> Path:  # noqa: ARG002 - all runs share one user-land
        """Make an empty folder within the other root directory. Raises `ToolMissingError`."""
        if not (USERLAND / ".made-from").exists() or not IMAGE.exists() or os.geteuid() != 0:
            raise ToolMissingError("the armv7l user-land", "sudo make device-image-check")
        folder = USERLAND / f"chaos-{home}"
        unmount(folder / DISK)  # a killed run leaves it mounted, and then the folder cannot be removed
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(IMAGE, folder / "image.pyz")
        return folder

    def command(self, settings: Path) -> list[str]:
        """Return what starts it as one process: unshare and the shell become the emulator."""
        inside = f"/{settings.parent.name}"
        enter = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
        image = [f"{inside}/image.pyz", "--settings", f"{inside}/{settings.name}"]
        python = ["/qemu-arm-static", "/usr/bin/python3", "-I", "-S"]
        return ["unshare", "--mount", "sh", "-c", enter, str(USERLAND), *python, *image]


_LIBFAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1",)


@dataclass(frozen=True)
class FakeClock:
    """A wall clock for one process that can be set while it runs (libfaketime).

    `file` has its offset in seconds. CLOCK_MONOTONIC and CLOCK_BOOTTIME stay true, as on a device.
    """

    library: Path
    file: Path

    @classmethod
    def found(cls, file: Path) -> Self | None:
        """Return a clock with offset 0; None without libfaketime (Debian's package of that name)."""
        library = next((path for each in _LIBFAKETIME for path in Path("/").glob(each[1:])), None)
        if library is None:
            return None
        clock = cls(library, file.resolve())
        clock.jump(0)
        return clock

    def jump(self, seconds: float) -> None:
        """Set the clock to `seconds` beyond the true time."""
        unfinished = self.file.with_suffix(".unfinished")
        unfinished.write_text(f"{seconds:+g}\n")
        unfinished.replace(self.file)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that make a process read this clock."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
            # Otherwise libfaketime ends each wait for the interpreter lock at once, and two threads contend.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


DISK: Final = "disk"
"""Where it is mounted, in a home's folder."""

_BLOCK: Final = 4_096
_BALLAST: Final = "ballast"


@dataclass(frozen=True)
class SmallDisk:
    """A file system in memory, mounted at `path`, that can be filled to its last byte."""

    path: Path

    def fill(self) -> None:
        """Fill it to the last block."""
        with contextlib.suppress(OSError), (self.path / _BALLAST).open("ab", buffering=0) as file:
            while True:
                file.write(bytes(_BLOCK))

    def empty(self) -> None:
        """Free what `fill` took."""
        (self.path / _BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[SmallDisk | None]:
    """Mount a disk at `path` while the `with` block runs; its files are copied beside it at the end.

    Yields None where mounting is not allowed: it requires root.
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
    """Unmount the disk at `path`, if there is one."""
    if path.is_mount():
        subprocess.run(["umount", "--lazy", str(path)], check=False)
