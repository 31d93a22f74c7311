"""What a home's forwarder runs on: this machine, or Debian's armv7l user-land under an emulator."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final, Protocol

from local.chaos.disk import DISK, unmount
from local.deploy import ROOT
from local.errors import ToolMissingError

DEVICE: Final = ROOT / "build" / "device"
IMAGE: Final = DEVICE / "eventplane-forwarder.pyz"
USERLAND: Final = DEVICE / "userland"
"""Made by `make device-image` and `tools/device-userland.sh`."""


class Machine(Protocol):
    """Where a forwarder's files are, and how it is started."""

    has_clock: bool
    """Whether its wall clock can be another one than ours."""

    def folder(self, run_dir: Path, home: str, /) -> Path:
        """The folder of its files, empty. Raises `ToolMissingError`."""

    def command(self, settings: Path) -> list[str]:
        """Starts it with `settings`, which lie in that folder and name others relative to it."""


class ThisMachine:
    """From this checkout."""

    has_clock = True

    def folder(self, run_dir: Path, home: str, /) -> Path:
        """Beneath the run's."""
        folder = (run_dir / "homes" / home).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def command(self, settings: Path) -> list[str]:
        """`python -m edge`."""
        return [sys.executable, "-m", "edge", "--settings", str(settings)]


class ArmUserland:
    """The device's one file under Debian's armv7l Python, in another root directory; takes root."""

    has_clock = False

    def folder(self, _run_dir: Path, home: str, /) -> Path:
        """Within the other root directory."""
        if not (USERLAND / ".made-from").exists() or not IMAGE.exists() or os.geteuid() != 0:
            raise ToolMissingError("the armv7l user-land", "sudo make device-image-check")
        folder = USERLAND / f"chaos-{home}"
        unmount(folder / DISK)  # of a run that was killed: nobody can remove what is mounted
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(IMAGE, folder / "image.pyz")
        return folder

    def command(self, settings: Path) -> list[str]:
        """One process: unshare and the shell become the emulator."""
        inside = f"/{settings.parent.name}"
        enter = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
        image = [f"{inside}/image.pyz", "--settings", f"{inside}/{settings.name}"]
        python = ["/qemu-arm-static", "/usr/bin/python3", "-I", "-S"]
        return ["unshare", "--mount", "sh", "-c", enter, str(USERLAND), *python, *image]
