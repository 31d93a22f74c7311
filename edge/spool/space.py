"""The space that the spool may take, how many deliveries may wait in it, and what it gives back.

The capacity in bytes counts what is stored. Beside it there is the write-ahead log and the reserve: a file
that is given up when the disk is full, because ending deliveries, which makes room, needs room first.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from edge.durable import beside
from edge.spool.database import PAGE_BYTES, WAL_BYTES

RESERVE_BYTES = WAL_BYTES + 512 * 1024
"""Enough for the log to be written to the main file, all of it new there; after that the log starts anew."""

START_BYTES = 512 * 1024
"""Enough for a start on a disk that is full but for it."""

KEPT_FREE_BYTES = 1024 * 1024
"""Free pages that stay in the file, to be used again."""

MEASURE_EVERY = 16
"""Commits between two measurements while the spool is less than half full."""

_STEP_PAGES = 256

reserve_of = partial(beside, suffix=".reserve")
"""The path of the reserve of a spool."""


class Space:
    """Measures and bounds the database `db` at `path`; `count` returns how many deliveries wait in it.

    `capacity_bytes` bounds the file's pages in use, `used_bytes`; the log and the reserve beside them take at
    most 9 MB. `capacity_deliveries` bounds the pending deliveries, `used_deliveries`: an event for two
    destinations has two. From a commit that found no room until `tidy` finds some, it is `refused`. A
    database in memory (`path` None) has no room, ever.
    """

    def __init__(
        self,
        path: Path | None,
        db: sqlite3.Connection,
        capacity_bytes: int,
        capacity_deliveries: int,
        count: Callable[[], int],
    ) -> None:
        self._db = db
        self._count = count
        self._reserve = reserve_of(path) if path else None
        self.capacity_bytes = capacity_bytes
        self.capacity_deliveries = capacity_deliveries
        self.used_bytes = 0
        self.used_deliveries = 0
        self._free_bytes = 0
        self._unmeasured = 0
        self._tidied_with = 0  # deliveries
        self._shrunk = False
        self.refused = path is None
        self._set_limit(capacity_bytes)
        if self._reserve and not (self._reserve.exists() and self._reserve.stat().st_size >= RESERVE_BYTES):
            self._make_reserve(self._reserve)
        self.measure()

    @property
    def pressure(self) -> float:
        """Return the used share of the scarcer capacity; at least 1.0 while there is no room on the disk."""
        used = max(self.used_bytes / self.capacity_bytes, self.used_deliveries / self.capacity_deliveries)
        return max(1.0, used) if self.refused else used

    def committed(self, stored_bytes: int) -> None:
        """Count a commit of `stored_bytes`. Measuring takes a tenth of its time, so few are measured."""
        self._unmeasured += 1
        self.used_bytes += stored_bytes
        self.used_deliveries = self._count()
        if self._unmeasured == MEASURE_EVERY or self.used_bytes > self.capacity_bytes // 2:
            self.measure()

    def measure(self) -> None:
        """Measure how much is used now."""
        self._unmeasured = 0
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        self.used_bytes = (pages - free) * PAGE_BYTES
        self.used_deliveries = self._count()
        self._free_bytes = free * PAGE_BYTES

    def give_up_reserve(self) -> None:
        """Let what ends deliveries be written."""
        if self._reserve:
            self._reserve.unlink(missing_ok=True)
        # The log goes back to its beginning; when there is no room for that either, the next try fails.
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._set_limit(self.capacity_bytes + RESERVE_BYTES)

    def tidy(self) -> bool:
        """Give free pages back and remake the reserve. Returns whether there is more to do.

        While a backlog drains, only where the disk has no room: what waits lies at the end of the file, and
        each of its pages would be moved forward, although it is soon free as well.
        """
        if self._unmeasured:
            self.measure()
        drains, self._tidied_with = self.used_deliveries < self._tidied_with, self.used_deliveries
        if self._free_bytes > self._kept_free():
            if drains and not self.refused:
                return True
            before = self._free_bytes
            # As a script: `execute` takes only the first step of it, a single page.
            self._db.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")
            self.measure()
            self._shrunk = True
            if self._kept_free() < self._free_bytes < before:
                return True
        if self._shrunk:
            # The file gets shorter only now.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._shrunk = False
        if self.refused and self._reserve and self._make_reserve(self._reserve):
            self._set_limit(self.capacity_bytes)
            self.refused = False
        return False

    def _kept_free(self) -> int:
        return KEPT_FREE_BYTES + self.used_bytes // 4

    def _set_limit(self, size: int) -> None:
        # SQLite never goes below what the file has: a smaller capacity deletes nothing.
        self._db.execute(f"PRAGMA max_page_count = {max(1, size // PAGE_BYTES)}").fetchone()

    @staticmethod
    def _make_reserve(reserve: Path) -> bool:
        """Return whether the disk had room for a whole new one, also when there is one already."""
        new = beside(reserve, ".new")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
            new.replace(reserve)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            return False
        return True


def written_bytes() -> int:
    """Return what this process has caused to be written to disks by the kernel's count (0: it has none)."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(each.split()[1]) for each in lines if each.startswith("write_bytes:")), 0)
