"""What must be in the spool's write-ahead log, and what can be read of it when it is damaged.

SQLite takes the first frame of the log that is not valid for its end, and drops the rest. After a power cut
that is right; after damage, commits that were acknowledged are missing. So each commit is noted in a file of
its own beside the spool, without a sync: the note may be older than the database, never newer. It is on the
disk before the database has a name there, so a database without one is damaged. The log itself is evidence,
too: a power cut can tear the transaction that was being written, no other, and the header never, because it
is synced before the first frame. Formats: https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edge import durable
from edge.spool.database import PAGE_BYTES, DamagedRowError, Device, TableTotals

_NOTE = struct.Struct("<16s7qI")  # the fields of a CommitNote, CRC-32 of them
_COPIES = (0, 512)
"""Where the note is in its file: in two sectors, so that one that is damaged costs nothing."""

_ANNOUNCED = -1

_HEADER = struct.Struct(">4I8s2I")  # magic, version, page size, checkpoint, salts, checksum of what is before
_FRAME = struct.Struct(">2I8s2I")  # page, pages of the database after a commit or 0, salts, checksum
_STEP = _FRAME.size + PAGE_BYTES
_MAGIC = 0x377F0682  # checksums of little-endian words
_VERSION = 3007000
_CHECKED = 24
_WORD = 0xFFFFFFFF
_Frame = tuple[int, int, bytes, bytes]
_LAST_FRAME = struct.Struct("=16xI")  # in the header of the shared memory, by the byte order of the machine


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
    return log.exists() and log.stat().st_size > _HEADER.size


def check_log_header(path: Path) -> None:
    """Raise `DamagedRowError` when SQLite would ignore the log of the spool at `path`."""
    with log_of(path).open("rb") as log:
        if _valid_salts(log.read(_HEADER.size)) is None:
            raise DamagedRowError("the header of the log")


def check_log_end(path: Path) -> None:
    """Raise `DamagedRowError` when there are commits behind the frame where SQLite has stopped reading.

    The spool at `path` must be open and have been read. At most one commit can be there after a power cut.
    """
    (valid,) = _LAST_FRAME.unpack(Path(f"{path}-shm").read_bytes()[: _LAST_FRAME.size])
    with log_of(path).open("rb") as log:
        salts = _valid_salts(log.read(_HEADER.size))
        log.seek(valid * _STEP, os.SEEK_CUR)
        commits = sum(pages > 0 for _, pages, found, _ in _frames(log) if found == salts)
    if commits > 1:
        raise DamagedRowError(f"the log, {commits} commits before its end,")


def log_of(path: Path) -> Path:
    """Return the path of the log of the database at `path`."""
    return Path(f"{path}-wal")


def note_of(path: Path) -> Path:
    """Return the path of the note of the last commit of the spool at `path`."""
    return path.with_name(path.name + ".commits")


def rebuild_log(database: Path, target: Path, pages: Mapping[int, bytes]) -> None:
    """Write the log of `database` to `target` with new checksums, so that SQLite reads it all.

    Damaged pages of it are read as they are: the checksums of the rows show which. `pages` come last and take
    the place of those in the database and in its log.
    """
    source = log_of(database)
    salts, last, size = _end_of(source) if has_log(database) else (bytes(8), 0, 0)
    size = size or database.stat().st_size // PAGE_BYTES
    header = struct.pack(">4I8s", _MAGIC, _VERSION, PAGE_BYTES, 0, salts)
    sums = _sum(header, (0, 0))
    with contextlib.ExitStack() as stack:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, file)
        place = os.pwrite(file, header + struct.pack(">2I", *sums), 0)
        frames: Iterator[_Frame] = iter(())
        if last:
            log = stack.enter_context(source.open("rb"))
            log.seek(_HEADER.size)
            frames = islice(_frames(log), last)
        for page, pages_after, _, data in chain(
            frames, ((n, size, salts, data) for n, data in pages.items())
        ):
            if page:
                front = struct.pack(">2I", page, pages_after)
                sums = _sum(front + data, sums)
                place += os.pwrite(file, front + salts + struct.pack(">2I", *sums) + data, place)


def _end_of(log: Path) -> tuple[bytes, int, int]:
    """Return the salts of the last round of a log, its last commit's frame and the pages after that."""
    last = size = 0
    with log.open("rb") as file:
        salts = _valid_salts(file.read(_HEADER.size))
        if salts is None:
            # The last round is at the beginning, with salts of its own; a single frame may be damaged.
            found = [frame[2] for frame in islice(_frames(file), 3)]
            salts = max(found, key=found.count, default=bytes(8))
            file.seek(_HEADER.size)
        for number, (_, pages, of_round, _) in enumerate(_frames(file), 1):
            if pages and of_round == salts:
                last, size = number, pages
    return salts, last, size


def _parsed(content: bytes) -> CommitNote | None:
    try:
        epoch, *numbers, code = _NOTE.unpack(content)
        return CommitNote(epoch.decode(), *numbers) if zlib.crc32(content[:-4]) == code else None
    except (struct.error, UnicodeDecodeError):
        return None


def _valid_salts(header: bytes) -> bytes | None:
    """Return the salts of a header that SQLite accepts."""
    if len(header) < _HEADER.size:
        return None
    magic, version, page_bytes, _, salts, *sums = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    valid = magic & ~1 == _MAGIC and (version, page_bytes) == (_VERSION, PAGE_BYTES)
    return salts if valid and _sum(header[:_CHECKED], (0, 0), order) == tuple(sums) else None


def _frames(log: BinaryIO) -> Iterator[_Frame]:
    """Read page, pages after a commit, salts and data of each whole frame."""
    while len(frame := log.read(_STEP)) == _STEP:
        page, pages, salts, *_ = _FRAME.unpack_from(frame)
        yield page, pages, salts, frame[_FRAME.size :]


def _sum(data: bytes, sums: tuple[int, int], order: str = "<") -> tuple[int, int]:
    """Go on with the log's checksum."""
    one, other = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + other) & _WORD
        other = (other + odd + one) & _WORD
    return one, other
