"""The files beside a spool: the note of its last commit, and whole spools that change places.

SQLite takes the first frame of the log that is not valid for its end, and drops the rest. After a power cut
that is right; after damage, commits that were acknowledged are missing. So each commit is noted in a file of
its own, without a sync: the note may be older than the database, never newer. It is on the disk before the
database has a name there, so a database without one is damaged.

A damaged spool, or one of another thing, is set aside for inspection; older ones are deleted beyond the
capacity. An exchange that is cut off is finished at the next start.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edge import durable
from edge.durable import beside
from edge.spool.database import DeviceRow, TableTotals
from edge.system import Host

_PART_BYTES = 1 << 20
_SIDES = ("", "-wal", "-shm")
_DAMAGED = r"\.damaged-(\d+)-\d+T\d+Z"

_NOTE = struct.Struct("<16s7qI")  # the fields of a CommitNote, CRC-32 of them
_COPIES = (0, 512)
"""Where the note is in its file: in two sectors, so that one that is damaged costs nothing."""

ANNOUNCED = -1
"""The commits of a note while nothing was committed in its epoch, not even its tables for certain."""

_LOG_HEADER_BYTES = 32

log_of = partial(beside, suffix="-wal")
"""The path of the log of a database."""

note_of = partial(beside, suffix=".commits")
"""The path of the note of a spool's last commit."""

marker_of = partial(beside, suffix=".damaged")
"""The path of the file that exists from when damage shows until the spool has been recovered."""

unfinished_of = partial(beside, suffix=".recovering")
"""The path at which a recovered spool is made."""

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


def finish_recovery(path: Path, capacity_bytes: int, system: Host) -> None:
    """Exchange a damaged spool for its recovered one, if there is one. Repeats what was cut off."""
    new = unfinished_of(path)
    remove(readable_of(path))
    remove(new)
    recovered = next((each for _, each in durable.numbered(path, r"\.recovered-().*")), None)
    if recovered is None:
        note_of(new).unlink(missing_ok=True)
        return
    if path.exists() and not recovered.name.endswith(f"-{checksum_of(recovered):08x}"):
        # It was damaged as well; what it was made from is still there.
        marker_of(path).touch()
        recovered.unlink()
        return
    _set_aside(path, system)
    # From its first moment on the new one has its note; the repetition of a cut exchange finds it there.
    with contextlib.suppress(FileNotFoundError):
        durable.move(note_of(new), note_of(path))
    durable.move(recovered, path)
    _prune(path, capacity_bytes)


def take_over(path: Path, thing: str, capacity_bytes: int, system: Host) -> str:
    """Write down that the spool at `path` is of `thing`; set that of another aside. Raises `OSError`.

    Returns what a new spool there has to report of that, '' for nothing. A spool without an owner's file was
    left by an earlier version. Its owner is unknown, so it stays, even if that file finds no room.
    """
    owner, said, file = "", "", beside(path, ".owner")
    with contextlib.suppress(FileNotFoundError):
        owner, _, said = file.read_text(encoding="utf-8", errors="replace").partition("\n")
    if owner == thing:
        return said
    if owner:
        _set_aside(path, system)
        note_of(path).unlink(missing_ok=True)
        _prune(path, capacity_bytes)
        kept = f"{path.name}.damaged-*"
        said = f"there was a spool of {owner!r:.150}: it is kept as {kept}, and none of its events is sent"
    try:
        # Before the new spool exists: if this fails, the next attempt must find nothing more to set aside.
        durable.write(file, f"{thing}\n{said}".encode())
    except OSError:
        if owner:
            raise
    return said


def _set_aside(path: Path, system: Host) -> None:
    aside = _aside(path, system)
    for side in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{side}").replace(f"{aside}{side}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    marker_of(path).unlink(missing_ok=True)
    # Another file at this place must never meet its log.
    durable.sync(path.parent)


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            checksum = zlib.crc32(part, checksum)
    return checksum


def _aside(path: Path, system: Host) -> Path:
    for _, log in durable.numbered(path, rf"{_DAMAGED}-wal"):
        whole = log.with_name(log.name.removesuffix("-wal"))
        if not (whole.exists() or log_of(path).exists()):
            return whole  # the power was cut before the database followed its log
    number = max((number for number, _ in durable.numbered(path, _DAMAGED)), default=0) + 1
    stamp = system.now().strftime("%Y%m%dT%H%M%SZ")
    return beside(path, f".damaged-{number:04d}-{stamp}")


def _prune(path: Path, capacity_bytes: int) -> None:
    durable.prune([_files(aside) for _, aside in durable.numbered(path, _DAMAGED)], capacity_bytes)


def _files(database: Path) -> list[Path]:
    return [each for each in (Path(f"{database}{side}") for side in _SIDES) if each.exists()]


def remove(database: Path) -> None:
    """Delete a database with its log."""
    for each in _files(database):
        each.unlink()
