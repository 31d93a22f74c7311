"""The device's key and certificate in one file, so that one rename replaces both.

A power cut at any moment leaves the old pair or the new one, never half of each. The next pair waits in a
file beside it until a connection has stood with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge import durable
from edge.provisioning.errors import IdentityFileError


class Identity:
    """The pair at `path` (PEM: key, certificate); `next_path` is the one that has yet to prove itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_path = path.with_name(path.name + ".next")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who replaces the pair. Raises `IdentityFileError`."""
        with contextlib.ExitStack() as held:
            with self._naming():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                taken = IdentityFileError(self.path, "another provisioning is at work")
                held.enter_context(durable.only_one(self.path, taken))
            yield

    def current(self) -> str | None:
        """The pair in use, None when there is none."""
        return _read(self.path)

    def has_next(self) -> bool:
        """Whether a pair waits for its first connection."""
        return self.next_path.exists()

    def stage(self, private_key: str, certificate: str) -> None:
        """Put a pair beside the one in use, durably. Raises `IdentityFileError`."""
        with self._naming():
            durable.write(self.next_path, f"{private_key.strip()}\n{certificate.strip()}\n".encode())

    def adopt(self) -> None:
        """Use the pair that waited. Raises `IdentityFileError`."""
        with self._naming():
            durable.move(self.next_path, self.path)

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
