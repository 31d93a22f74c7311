"""A disk whose power fails: before the operation of a given number, and with whatever was not yet synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class PowerCutError(BaseException):
    """Not an Exception: nothing in the code may catch it."""


class Disk:
    """Counts the file operations of `edge.provisioning.renewal`, and cuts the power before number `cut`.

    Of a file that was not synced nothing is left but its name. A rename that was not synced is undone when
    `forgets_renames`: both outcomes happen in the world.
    """

    def __init__(self, patch: pytest.MonkeyPatch, cut: int, *, forgets_renames: bool) -> None:
        self.operations = 0
        self._cut = cut
        self._forgets = forgets_renames
        self._names: dict[int, str] = {}  # by descriptor, which the next file may get again
        self._unsynced: set[str] = set()
        self._undo: list[Callable[[], None]] = []
        self._real = {name: getattr(os, name) for name in ("open", "replace", "fsync", "unlink")}
        for name in self._real:
            patch.setattr(os, name, getattr(self, f"_{name}"))

    def fail(self) -> None:
        """The power goes: what was not synced goes with it."""
        for path in self._unsynced:
            os.truncate(path, 0)
        if self._forgets:
            for undo in reversed(self._undo):
                undo()

    def _count(self) -> None:
        self.operations += 1
        if self.operations == self._cut:
            raise PowerCutError

    def _open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        self._count()
        descriptor: int = self._real["open"](path, flags, *arguments, **options)
        self._names[descriptor] = str(path)
        if flags & os.O_WRONLY:
            self._unsynced.add(str(path))
        return descriptor

    def _fsync(self, descriptor: int) -> None:
        self._count()
        self._real["fsync"](descriptor)
        if Path(self._names[descriptor]).is_dir():
            self._undo.clear()  # its renames are on the disk
        self._unsynced.discard(self._names[descriptor])

    def _replace(self, source: Any, target: Any) -> None:
        self._count()
        before = Path(target).read_bytes() if Path(target).exists() else None
        content = Path(source).read_bytes()
        self._real["replace"](source, target)
        if str(source) in self._unsynced:
            self._unsynced.remove(str(source))
            self._unsynced.add(str(target))

        def undo() -> None:
            Path(source).write_bytes(content)
            if before is None:
                Path(target).unlink()
            else:
                Path(target).write_bytes(before)

        self._undo.append(undo)

    def _unlink(self, path: Any, **options: Any) -> None:
        self._count()
        self._real["unlink"](path, **options)
