"""Read what is left of the spool's write-ahead log when it is damaged.

The log is evidence: a power cut can tear the transaction that was being written, no other, and the header
never, because it is synced before the first frame. Only a start that finds a log, after a kill or a power
cut, loads this module. Formats: https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from edge.spool.database import PAGE_BYTES, DamagedRowError
from edge.spool.files import has_log, log_of

_HEADER = struct.Struct(">4I8s2I")  # magic, version, page size, checkpoint, salts, checksum of what is before
_FRAME = struct.Struct(">2I8s2I")  # page, pages of the database after a commit or 0, salts, checksum
_STEP = _FRAME.size + PAGE_BYTES
_MAGIC = 0x377F0682  # checksums of little-endian words
_VERSION = 3007000
_CHECKED = 24
_WORD = 0xFFFFFFFF
_Frame = tuple[int, int, bytes, bytes]
_LAST_FRAME = struct.Struct("=16xI")  # in the header of the shared memory, by the byte order of the machine


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
