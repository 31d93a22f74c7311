"""Record the files and folders that a process touches beneath a folder, by Linux's inotify."""

import ctypes
import os
import select
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

_OPEN: Final = 0x20
_OVERFLOW: Final = 0x4000
_IS_FOLDER: Final = 0x40000000
_HEAD: Final = struct.Struct("iIII")
"""An event without its name: watch, mask, cookie, length of the name (inotify(7))."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


class LostEventsError(Exception):
    """The kernel dropped events: the counts would be too low."""

    def __init__(self) -> None:
        super().__init__("inotify's queue overflowed; raise /proc/sys/fs/inotify/max_queued_events")


class Accesses:
    """The folders that were `listed` and how often each file was opened (`opens`), from the watched root.

    The kernel may report openings of one file as one if nothing else is opened between them.
    """

    def __init__(self, root: Path) -> None:
        self.listed: set[Path] = set()
        self.opens: Counter[Path] = Counter()
        self._root = root
        self._is_complete = True
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        folders = [root, *(each for each in root.rglob("*") if each.is_dir())]
        self._folders = {self._watch(each): each.relative_to(root) for each in folders}

    @property
    def opened(self) -> set[Path]:
        """The files that were opened."""
        return set(self.opens)

    def objects_listed(self) -> int:
        """Return how many files lie in the folders that were listed."""
        return sum(each.is_file() for folder in self.listed for each in (self._root / folder).iterdir())

    def note(self) -> bool:
        """Take in what has happened; return whether there may be more."""
        try:
            events = os.read(self._fd, 2**16)
        except BlockingIOError:
            return False
        place = 0
        while place < len(events):
            watch, mask, _, length = _HEAD.unpack_from(events, place)
            place += _HEAD.size + length
            if mask & _OVERFLOW:
                self._is_complete = False
                continue
            name = events[place - length : place].rstrip(b"\0").decode()
            if not mask & _IS_FOLDER:
                self.opens[self._folders[watch] / name] += 1
            elif not name:
                self.listed.add(self._folders[watch])
        return True

    def wait(self, timeout_s: float) -> None:
        """Return when something has happened, after `timeout_s` at the latest."""
        select.select([self._fd], [], [], timeout_s)

    def close(self) -> None:
        """Watch no more. Raises `LostEventsError`."""
        while self.note():
            pass
        os.close(self._fd)
        if not self._is_complete:
            raise LostEventsError

    def _watch(self, folder: Path) -> int:
        watch = int(_libc.inotify_add_watch(self._fd, os.fsencode(folder), _OPEN))
        if watch < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        return watch


@contextmanager
def watched(root: Path) -> Iterator[Accesses]:
    """Yield what any process accesses beneath `root`; complete when the block has ended.

    Raises `LostEventsError`.
    """
    accesses, ended = Accesses(root), Event()

    def read() -> None:
        while not ended.is_set():
            accesses.wait(0.2)
            accesses.note()

    reader = Thread(target=read)
    reader.start()
    try:
        yield accesses
    finally:
        ended.set()
        reader.join()
        accesses.close()
