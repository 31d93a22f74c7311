"""The device's key and certificate in one file, so that one rename replaces both.

A power cut at any moment leaves the old pair or the new one, never half of each. The next pair waits in a
file beside it until a connection has stood with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from edge.provisioning.errors import IdentityFileError


class Identity:
    """The pair at `path` (PEM: key, certificate); `next_path` is the one that has yet to prove itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_path = path.with_name(path.name + ".next")
        self._unfinished = path.with_name(path.name + ".unfinished")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who replaces the pair. Raises `IdentityFileError`."""
        with self._naming():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(
                self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise IdentityFileError(self.path, "another provisioning is at work") from error
            yield
        finally:
            os.close(lock)

    def current(self) -> str | None:
        """The pair in use, None when there is none."""
        return _read(self.path)

    def has_next(self) -> bool:
        """Whether a pair waits for its first connection."""
        return self.next_path.exists()

    def stage(self, private_key: str, certificate: str) -> None:
        """Put a pair beside the one in use, durably. Raises `IdentityFileError`."""
        with self._naming():
            # A file that an earlier cut left may have another mode: never write into it.
            self._unfinished.unlink(missing_ok=True)
            descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{private_key.strip()}\n{certificate.strip()}\n")
                file.flush()
                os.fsync(file.fileno())
            self._rename(self._unfinished, self.next_path)

    def adopt(self) -> None:
        """Use the pair that waited. Raises `IdentityFileError`."""
        with self._naming():
            self._rename(self.next_path, self.path)

    def _rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)  # noqa: PTH105 - beside its fsync, on purpose
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IdentityFileError(self.path, str(error.strerror or error)) from error


def _read(path: Path) -> str | None:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        # Absent, unreadable or damaged: in each case there is nothing to connect with.
        return None
