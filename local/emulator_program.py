"""Start the emulator so that the processes of its functions share their unpacked code and dependencies.

It unpacks 2,000 files for each process of each function, a large part of the time in which a plane starts.
`local.emulator` runs this file with the Python of .venv-emulator.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from types import SimpleNamespace

from ministack.app import main  # type: ignore[import-not-found, unused-ignore]
from ministack.core import lambda_runtime  # type: ignore[import-not-found, unused-ignore]

UNPACKED = Path(tempfile.gettempdir()) / "unpacked"

_lock = threading.Lock()


class SharedArchive(zipfile.ZipFile):
    """An archive of code, which is unpacked once, because no function writes to its code."""

    def extractall(
        self,
        path: str | PathLike[str] | None = None,
        members: Iterable[str | zipfile.ZipInfo] | None = None,
        pwd: bytes | None = None,
    ) -> None:
        """Replace the empty folder `path` by a link to the one folder with these files."""
        content = Path(self.filename or "").read_bytes()
        shared = UNPACKED / hashlib.sha256(content).hexdigest()[:32]
        with _lock:
            if not shared.exists():
                unfinished = shared.with_suffix(".unfinished")
                super().extractall(unfinished, members, pwd)
                unfinished.rename(shared)
        link = Path(path or "")
        link.rmdir()
        link.symlink_to(shared)


if __name__ == "__main__":
    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedArchive})
    sys.exit(main())
