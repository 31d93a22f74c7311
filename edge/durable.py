"""Files on a disk that may fail: write so that a power cut does no harm, lock a file, load a module."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

_log = logging.getLogger(__name__)

MOST_KEPT = 3
"""Damaged files that are kept."""


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to `path`: it has the same name with `suffix` behind."""
    return path.with_name(path.name + suffix)


def write(path: Path, content: bytes) -> None:
    """Put `content` in the place of the file at `path`, for its owner alone; a power cut leaves one of both.

    Raises `OSError`; what was there before is untouched then.
    """
    unfinished = beside(path, ".unfinished")
    # A file that an earlier cut left may have another mode: never write into it.
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    move(unfinished, path)


def move(source: Path, target: Path) -> None:
    """Put the file `source` in the place of `target`, in the same directory. Raises `OSError`."""
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Bring what was written to a file, or the names in a directory, to the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def numbered(path: Path, suffix: str) -> list[tuple[int, Path]]:
    """Return the files beside `path` whose suffix is the pattern `suffix`, by the number in its group.

    The number, 0 where the group is empty, is their age: a device's wall clock may be wrong.
    """
    found = ((re.fullmatch(re.escape(path.name) + suffix, each.name), each) for each in path.parent.glob("*"))
    return sorted((int(match[1] or 0), each) for match, each in found if match)


def prune(asides: Sequence[Sequence[Path]], most_bytes: int) -> None:
    """Delete older ones of `asides`: the files of each, the oldest first. Raises `OSError`.

    The newest stays, and of the others as many as are within `MOST_KEPT` and, together, `most_bytes`.
    """
    size = 0
    for place, files in enumerate(reversed(asides)):
        size += sum(each.stat().st_size for each in files)
        if place and (place >= MOST_KEPT or size > most_bytes):
            for each in files:
                each.unlink()


@contextlib.contextmanager
def only_one(path: Path, taken: Exception) -> Iterator[None]:
    """Hold the lock file beside `path`; the system lets go of it when the process ends, however it ends.

    Raises `taken` when another process holds it, and `OSError`.
    """
    lock = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise taken from error
        yield
    finally:
        os.close(lock)


def can_load(module: str) -> bool:
    """Return whether `module` is in memory, or can be loaded now; log why not.

    The file of the program may be unreadable by now, or be another version's: that must not end the loop.
    """
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001 - a damaged file raises whatever its bytes make of it
        remedy = "see that the disk of the program works, then restart the forwarder"
        _log.error("%s cannot be loaded: %s; %s", module, error, remedy)
        return False
    return True
