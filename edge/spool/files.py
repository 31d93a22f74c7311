"""The files of a spool: the note of its last commit beside it, its owner, and the room that all may take.

SQLite takes the first frame of the log that is not valid for its end, and drops the rest. After a power cut
that is right; after damage, commits that were acknowledged are missing. So each commit is noted in a file of
its own, without a sync: the note may be older than the database, never newer. It is on the disk before the
database has a name there, so a database without one is damaged.

The capacity in bytes counts what is stored. Beside it there is the write-ahead log and the reserve: a file
that is given up when the disk is full, because ending deliveries, which makes room, needs room first.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edge import durable
from edge.durable import beside
from edge.spool.database import PAGE_BYTES, WAL_BYTES, DeviceRow, TableTotals

_NOTE = struct.Struct("<16s7qI")  # the fields of a CommitNote, CRC-32 of them
_COPIES = (0, 512)
"""Where the note is in its file: in two sectors, so that one that is damaged costs nothing."""

ANNOUNCED = -1
"""The commits of a note while nothing was committed in its epoch, not even its tables for certain."""

_LOG_HEADER_BYTES = 32

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

log_of = partial(beside, suffix="-wal")
"""The path of the log of a database."""

note_of = partial(beside, suffix=".commits")
"""The path of the note of a spool's last commit."""

marker_of = partial(beside, suffix=".damaged")
"""The path of the file that exists from when damage shows until the spool has been recovered."""

unfinished_of = partial(beside, suffix=".recovering")
"""The path at which a recovered spool is made."""

recovered_of = partial(beside, suffix=".recovered-")
"""What the path of a recovered spool begins with; its checksum follows."""

readable_of = partial(beside, suffix=".salvage")
"""The path of a name under which a damaged spool is read."""


class CommitNote(NamedTuple):
    """The content of an epoch's spool after its last commit, or after one before.

    `commits` is `ANNOUNCED` while the spool is created. No number that was pending is below
    `first`. `discards` and `states` are numbers of rows. `unreported` is how many events an earlier epoch
    lost at most, as long as that has not been reported (-1: unknown).
    """

    epoch: str
    commits: int
    next_sequence: int
    pending: int
    first: int
    discards: int
    states: int
    unreported: int

    @classmethod
    def of(cls, device: DeviceRow, totals: TableTotals, first: int) -> CommitNote:
        """Return the note of the commit that wrote `device`; `totals` are those in it."""
        discards, states = (totals.total(each)[0] for each in ("discard", "device_state"))
        lost = device.read_origin().lost
        return cls(
            device.epoch,
            device.commits,
            device.next_sequence,
            device.pending,
            first,
            discards,
            states,
            -1 if lost is None else lost,
        )

    def pack(self) -> bytes:
        """Return the contents of the file."""
        fields = _NOTE.pack(self.epoch.encode(), *self[1:], 0)[:-4]
        packed = fields + struct.pack("<I", zlib.crc32(fields))
        return packed.ljust(_COPIES[1], b"\0") + packed


class CommitNotes:
    """The announced note of the spool at `path`, which becomes that of each commit; `note`'s is the last."""

    def __init__(self, path: Path, note: CommitNote) -> None:
        """Put `note` on the disk. Raises `OSError`: nothing must be stored then."""
        self._file = os.open(note_of(path), os.O_RDWR | os.O_CLOEXEC)
        try:
            self._write(note)
            os.fsync(self._file)
        except BaseException:
            self.close()
            raise

    def write(self, note: CommitNote) -> None:
        """Note a commit that is on the disk. A disk that cannot keep the note keeps an older one."""
        with contextlib.suppress(OSError):
            self._write(note)

    def _write(self, note: CommitNote) -> None:
        # Each copy is within one sector: a power cut leaves this note or an older one.
        os.pwrite(self._file, note.pack(), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def announce(path: Path, epoch: str) -> CommitNote:
    """Note on the disk that the spool of `epoch` is created at `path`, and return the note.

    Raises `OSError`; no file of the spool must exist before.
    """
    note = CommitNote(epoch, ANNOUNCED, 1, 0, 1, 0, 0, 0)
    durable.write(note_of(path), note.pack())
    return note


def read_note(path: Path) -> CommitNote | None:
    """Return the last note of the spool at `path`, None when there is none that is intact."""
    try:
        content = note_of(path).read_bytes()
    except OSError:
        return None
    copies = [_parsed(content[start : start + _NOTE.size]) for start in _COPIES]
    return max((each for each in copies if each), key=lambda each: each.commits, default=None)


def has_log(path: Path) -> bool:
    """Return whether there is a log with at least a frame."""
    log = log_of(path)
    return log.exists() and log.stat().st_size > _LOG_HEADER_BYTES


def _parsed(content: bytes) -> CommitNote | None:
    try:
        epoch, *numbers, code = _NOTE.unpack(content)
        return CommitNote(epoch.decode(), *numbers) if zlib.crc32(content[:-4]) == code else None
    except (struct.error, UnicodeDecodeError):
        return None


def take_over(path: Path, thing: str, set_aside: Callable[[], None]) -> str:
    """Write down that the spool at `path` is of `thing`; `set_aside` that of another. Raises `OSError`.

    Returns what a new spool there has to report of that, '' for nothing. A spool without an owner's file was
    left by an earlier version. Its owner is unknown, as with a damaged file, so it stays, even if that file
    finds no room.
    """
    owner, said, file = "", "", beside(path, ".owner")
    with contextlib.suppress(FileNotFoundError):
        owner, _, said = file.read_text(encoding="utf-8", errors="replace").partition("\n")
    if not re.fullmatch("[A-Za-z0-9:_-]+", owner):
        owner, said = "", ""  # no thing's name: a damaged file must not cost what is pending
    if owner == thing:
        return said
    if owner:
        set_aside()
        kept = f"{path.name}.damaged-*"
        said = f"there was a spool of {owner!r:.150}: it is kept as {kept}, and none of its events is sent"
    try:
        # Before the new spool exists: if this fails, the next attempt must find nothing more to set aside.
        durable.write(file, f"{thing}\n{said}".encode())
    except OSError:
        if owner:
            raise
    return said


def is_recovering(path: Path) -> bool:
    """Return whether a recovery of the spool at `path` left files: `edge.spool.recovery` finishes it."""
    left = tuple(each(path).name for each in (unfinished_of, recovered_of, readable_of))
    return any(each.name.startswith(left) for each in path.parent.iterdir())


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
