"""The note of the last commit, beside the spool: what must be in it.

SQLite takes the first frame of the log that is not valid for its end, and drops the rest. After a power cut
that is right; after damage, commits that were acknowledged are missing. So each commit is noted in a file of
its own beside the spool, without a sync: the note may be older than the database, never newer. It is on the
disk before the database has a name there, so a database without one is damaged.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from edge import durable
from edge.spool.database import Device, TableTotals

_NOTE = struct.Struct("<16s7qI")  # the fields of a CommitNote, CRC-32 of them
_COPIES = (0, 512)
"""Where the note is in its file: in two sectors, so that one that is damaged costs nothing."""

_ANNOUNCED = -1

_LOG_HEADER_BYTES = 32


class CommitNote(NamedTuple):
    """What the spool of an epoch had after its last commit, or after one before.

    `commits` is -1 while the spool is created: it may have no tables yet. No number that was pending is below
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

    @property
    def is_announced(self) -> bool:
        """Whether nothing was committed in this epoch, not even its tables for certain."""
        return self.commits == _ANNOUNCED

    @classmethod
    def of(cls, device: Device, totals: TableTotals, first: int) -> CommitNote:
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
    note = CommitNote(epoch, _ANNOUNCED, 1, 0, 1, 0, 0, 0)
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


def log_of(path: Path) -> Path:
    """Return the path of the log of the database at `path`."""
    return Path(f"{path}-wal")


def note_of(path: Path) -> Path:
    """Return the path of the note of the last commit of the spool at `path`."""
    return path.with_name(path.name + ".commits")


def _parsed(content: bytes) -> CommitNote | None:
    try:
        epoch, *numbers, code = _NOTE.unpack(content)
        return CommitNote(epoch.decode(), *numbers) if zlib.crc32(content[:-4]) == code else None
    except (struct.error, UnicodeDecodeError):
        return None
