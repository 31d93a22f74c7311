"""The spool's database: SQLite's settings, the tables, and what its errors mean.

Each row has a checksum, because SQLite has none: `checksum` covers the name of the table and every other
column. A row that is missing shows as well, by `TableTotals` in the small tables, and by the chain of each
queue (`edge.spool.deliveries`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from edge.durable import beside
from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError, SpoolUnavailableError
from edge.spool import SpoolOrigin
from edge.system import UptimeClock
from eventplane.values import RandomBytes

FORMAT: Final = 8
"""Version of the tables, in SQLite's `user_version`; 0 is an empty file. In 7 no batch is compressed."""

OLDEST_FORMAT: Final = 7
"""The oldest one that is read."""

PAGE_BYTES = 512
"""Measured: a commit of one event writes half of what it does with 1024, a bulk the same."""

WAL_BYTES = 4 * 1024 * 1024
"""What is delivered while it is in the log is hardly written to the main file; a start reads all of it."""

SCHEMA = (
    """CREATE TABLE device (
    epoch TEXT NOT NULL, next_sequence INTEGER NOT NULL,
    commits INTEGER NOT NULL, -- so many in this epoch
    pending INTEGER NOT NULL, -- deliveries of all queues
    uptime_ms INTEGER NOT NULL, boot TEXT NOT NULL, boot_ms INTEGER NOT NULL,
    origin TEXT NOT NULL, -- JSON of a SpoolOrigin until it has been reported, then ''
    totals BLOB NOT NULL, checksum INTEGER NOT NULL
)""",
    # A destination at a rank: how many deliveries are pending, and what was stored since the last closing.
    # `head` is the last batch that was removed from the queue's beginning, `tail` its last one (`head`:
    # empty).
    """CREATE TABLE queue (
    number INTEGER PRIMARY KEY, destination TEXT NOT NULL, rank INTEGER NOT NULL,
    pending INTEGER NOT NULL, newest INTEGER NOT NULL, head INTEGER NOT NULL, tail INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, digest BLOB NOT NULL,
    checksum INTEGER NOT NULL
)""",
    # Events of one rank and the same destinations (addresses, one a line), known by its last sequence.
    # It has all that is needed to deliver them again, so that it survives damage to the other tables.
    """CREATE TABLE batch (
    last INTEGER PRIMARY KEY, rank INTEGER NOT NULL, stored_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,
    destinations TEXT NOT NULL, texts BLOB NOT NULL
)""",
    # The events of a batch that are pending in a queue, whose batches never overlap. `before` is the queue's
    # batch before this one: a chain, so that a missing row shows.
    """CREATE TABLE delivery (
    queue INTEGER NOT NULL, last INTEGER NOT NULL, before INTEGER NOT NULL, waiting BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (queue, last)
) WITHOUT ROWID""",
    # A ring: the block with number `block` of the keys of all events, 16 in each.
    """CREATE TABLE recent (
    slot INTEGER PRIMARY KEY, block INTEGER NOT NULL, keys BLOB NOT NULL, checksum INTEGER NOT NULL
)""",
    """CREATE TABLE discard (
    destination TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (destination, outcome, reason, first)
) WITHOUT ROWID""",
    # What the cloud desires of the device, by kind and key: the newest state, the number of the last command.
    # `rank` and `sequence` are those of its delivery on the device. A higher `number` is more recent.
    """CREATE TABLE device_state (
    number INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    live INTEGER NOT NULL, -- a state that is not deleted
    reset INTEGER NOT NULL, -- the last one of the key's versions: before it nothing counts
    version INTEGER NOT NULL, deleted INTEGER NOT NULL, position INTEGER NOT NULL,
    sender TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
    rank INTEGER NOT NULL, sequence INTEGER NOT NULL, text BLOB NOT NULL,
    UNIQUE (kind, key)
)""",
    "CREATE INDEX device_state_age ON device_state (live, number)",
    # The last number of each counter of an ordered inbox, within this epoch.
    "CREATE TABLE counter (name TEXT PRIMARY KEY, last INTEGER NOT NULL, checksum INTEGER NOT NULL)"
    " WITHOUT ROWID",
)

CACHE_KIB = 512
"""Measured: with SQLite's own 2,000 KiB a backlog takes 2 MiB more memory and no less CPU."""

EPOCH_BYTES = 8
"""Random bytes in an epoch id, which names one life of the spool."""

SMALL_TABLES = ("queue", "discard", "device_state", "counter")
"""Tables whose totals are checked at every start. Those of the batches are for a recovery."""

_ORDER = {
    # Without the texts, which can be a quarter of the capacity.
    "device_state": """
SELECT IIF(COUNT(*) = 0, 'ok', 'a row is not in the index') FROM device_state AS each NOT INDEXED
WHERE number IS NOT (SELECT number FROM device_state WHERE kind = each.kind AND key = each.key)
"""
}

_PATIENCE_S = 0.5
"""How long somebody who reads the file may delay a commit, seconds."""

_SANE_FORMATS = 32
"""A higher number in the header is not a newer format, it is damage."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PRIMARY = 0xFF
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    # A block that the disk cannot read any more is as good as a torn one.
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
    # `Spool.commit` checks the numbers that it is given: where one exists already, the table is not as
    # written.
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
}
_WRITE_FAILED = {
    # SQLite reports FULL for ENOSPC only; a quota and a size limit look like these, and so does a broken
    # disk.
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


class DamagedRowError(ValueError):
    """The row that the text describes is not as it was written."""


def checksum(table: str, *values: int | str | bytes) -> int:
    """Return the CRC-32 of a row of `table`. The type of each value counts, and so does the table's name."""
    return zlib.crc32(repr((table, values)).encode())


class TableTotals:
    """The number of rows and the sum of the checksums of each of the small tables, and of the batches."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys((*SMALL_TABLES, "batch"), (0, 0))

    def add(self, table: str, checksum: int) -> None:
        """Count a new row."""
        count, total = self._totals[table]
        self._totals[table] = count + 1, total + checksum

    def remove(self, table: str, checksum: int) -> None:
        """Stop counting a row."""
        count, total = self._totals[table]
        self._totals[table] = count - 1, total - checksum

    def total(self, table: str) -> tuple[int, int]:
        """Return the number of rows of `table` and the sum of their checksums."""
        return self._totals[table]

    def copy(self) -> TableTotals:
        """Return totals that change apart from these."""
        other = TableTotals()
        other._totals = self._totals.copy()
        return other

    def pack(self) -> bytes:
        """Return the totals in the form in which they are stored."""
        return b" ".join(b"%d %d" % each for each in self._totals.values())

    @classmethod
    def unpack(cls, packed: bytes) -> TableTotals:
        """Return what `pack` packed. Raises `ValueError`."""
        numbers = [int(each) for each in packed.split()]
        totals = cls()
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        totals._totals = dict(zip(totals._totals, pairs, strict=True))
        return totals

    def check(self, db: sqlite3.Connection) -> None:
        """Compare the totals with the tables. Raises `DamagedRowError`, and `sqlite3.Error`."""
        for table in SMALL_TABLES:
            expected = self._totals[table]
            found = db.execute(f"SELECT COUNT(*), IFNULL(SUM(checksum), 0) FROM {table}").fetchone()  # noqa: S608
            # Lookups need the order of the rows too, and the index.
            (order,) = db.execute(_ORDER.get(table, f"PRAGMA integrity_check({table})")).fetchone()
            if found != expected or order != "ok":
                raise DamagedRowError(f"table {table}: {found[0]} of {expected[0]} rows, {order}: it")


class DeviceRow(NamedTuple):
    """The row of the table `device`."""

    epoch: str
    next_sequence: int
    commits: int
    pending: int
    uptime_ms: int
    boot: str
    boot_ms: int
    origin: str
    totals: bytes

    @classmethod
    def read(cls, db: sqlite3.Connection) -> DeviceRow:
        """Read the row. Raises `DamagedRowError`."""
        row = db.execute("SELECT * FROM device").fetchone()
        if row is None or checksum("device", *row[:-1]) != row[-1]:
            raise DamagedRowError("the row of the device")
        return cls(*row[:-1])

    def read_origin(self) -> SpoolOrigin:
        """Return the origin of the spool."""
        if not self.origin:
            return SpoolOrigin("resumed")
        origin = SpoolOrigin(*json.loads(self.origin))
        return origin._replace(lost_ranges=tuple((first, last) for first, last in origin.lost_ranges))

    def write(self, db: sqlite3.Connection) -> None:
        """Put it in the place of the row."""
        db.execute(_WRITE, (*self, checksum("device", *self)))


_WRITE = f"UPDATE device SET {', '.join(f'{each} = ?' for each in (*DeviceRow._fields, 'checksum'))}"  # noqa: S608


def new_epoch(random_bytes: RandomBytes) -> str:
    """Return the id of a new epoch."""
    return random_bytes(EPOCH_BYTES).hex()


def create(db: sqlite3.Connection, origin: SpoolOrigin, clock: UptimeClock, epoch: str) -> None:
    """Make the tables of `epoch`."""
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute(f"INSERT INTO device VALUES ({'0, ' * len(DeviceRow._fields)}0)")  # noqa: S608
    totals = TableTotals().pack()
    DeviceRow(epoch, 1, 0, 0, clock(), *clock.uptime(), json.dumps(origin), totals).write(db)


def connect(path: Path | None) -> sqlite3.Connection:
    """Open the database at `path`, which is created when it does not exist; None: in memory."""
    if path is not None:
        # SQLite would let everybody read it; the log gets the mode of the database.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None, timeout=_PATIENCE_S)
    try:
        # The first two count for a new file only, and before the journal's mode.
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // PAGE_BYTES}")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        # Debian's SQLite overwrites what is deleted, page by page.
        db.execute("PRAGMA secure_delete = OFF")
    except BaseException:
        db.close()
        raise
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the database at `path` so that neither it nor its log is changed, not even by closing it."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def check_header(path: Path) -> None:
    """Raise `DamagedRowError` for a number that SQLite takes for a file of the future, and never writes."""
    if path.is_file():
        with path.open("rb") as file:
            versions = file.read(20)[18:]
        if any(each not in (1, 2) for each in versions):
            raise DamagedRowError("the header of the file")


def has_tables(path: Path, db: sqlite3.Connection) -> bool:
    """Return whether `db` has its tables; False for a new file.

    Raises `SpoolUnavailableError` for a newer format, which is left as it is, and `SpoolCorruptError` for
    everything else that is not of this format.
    """
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if FORMAT < found < _SANE_FORMATS:
        raise SpoolUnavailableError(
            path, f"its format is {found}, not {FORMAT}", "run the program that wrote it, or a newer one"
        )
    tables = [
        sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
    ]
    if found == 0 and not tables:
        return False
    if 0 < found < OLDEST_FORMAT:
        raise SpoolCorruptError(
            path, f"its format is {found}, of an earlier version, which is not read any more"
        )
    if not OLDEST_FORMAT <= found <= FORMAT or tables != list(SCHEMA):
        raise SpoolCorruptError(path, f"its {len(tables)} tables of format {found} are not those of a spool")
    return True


def upgrade(db: sqlite3.Connection) -> None:
    """Have programs that cannot read what is written from now on refuse tables of an older format."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found < FORMAT:
        db.execute(f"PRAGMA user_version = {FORMAT}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done within, or none of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def named_errors(path: Path, problem: str) -> Iterator[None]:
    """Raise the spool's errors in place of SQLite's and the system's."""
    try:
        yield
    except (DamagedRowError, UnicodeDecodeError) as error:
        # The second where SQLite's message quotes a damaged schema: Python cannot decode that.
        raise SpoolCorruptError(path, str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise _named(path, problem, error) from error


@contextlib.contextmanager
def invalid_is_damage(path: Path) -> Iterator[None]:
    """While only the file's own contents are read: what cannot be understood is damage."""
    try:
        yield
    except (SpoolError, DamagedRowError):
        raise
    except (TypeError, ValueError, OverflowError, LookupError) as error:
        raise SpoolCorruptError(path, f"it contains invalid data: {error!r}") from error
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
            raise
        raise SpoolCorruptError(path, str(error)) from error  # the schema is not ours


def _named(path: Path, problem: str, error: sqlite3.Error | OSError) -> SpoolError:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError):
        return SpoolCorruptError(path, str(error))  # Python's own: a text in it is no UTF-8
    if code is not None and (code in _DAMAGED or code & _PRIMARY in _DAMAGED):
        return SpoolCorruptError(path, str(error))
    number = error.errno if isinstance(error, OSError) else None
    if code in _WRITE_FAILED:
        number = _why_not_writable(path)
    if code == sqlite3.SQLITE_FULL or number in _NO_ROOM:
        return SpoolFullError(path, f"{problem}: {error}", "make room on the disk, or raise the capacity")
    return SpoolUnavailableError(
        path, f"{problem}: {error}", "see that the disk works and the directory is writable"
    )


def _why_not_writable(path: Path) -> int:
    """Return the number of the error when a small file is written beside `path`.

    When that works, SQLite met a limit of the file's size.
    """
    probe = beside(path, ".probe")
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, bytes(PAGE_BYTES), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EFBIG
