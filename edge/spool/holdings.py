"""What the cloud desires of the device, newest of each key, within the caller's transaction.

Beside states there are deletions, so that what is older and comes late does not bring a key back, and the
numbers of the last commands, so that none comes twice. Of these the oldest make room: nothing so old is still
on its way. A checksum stands beside each text, because SQLite has none.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from edge.spool.batch import DamagedTextError
from edge.spool.records import Holding
from eventplane.downlink.reception import Held

MOST_KEYS = 4096
"""Keys of which the device holds a state, and as many deletions and commands. Ours: a home's settings and
messages are a few hundred, and 4,096 states of 350 B are 2 MB on the disk."""

_COLUMNS = (
    "kind, key, live, reset, version, deleted, position, sender, source, id, rank, sequence, checksum, text"
)
_GET = f"SELECT {_COLUMNS} FROM holding WHERE kind = ? AND key = ?"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM holding ORDER BY number"  # noqa: S608
_TYPES = (str, str, int, int, int, int, int, str, str, str, int, int, int, bytes)
_LENGTH = "SELECT IFNULL(LENGTH(text), 0) FROM holding WHERE kind = ? AND key = ?"
# A new number each time: they tell which is the oldest.
_PUT = f"INSERT OR REPLACE INTO holding ({_COLUMNS}) VALUES ({', '.join('?' * len(_TYPES))})"  # noqa: S608
_TRIM = """
DELETE FROM holding WHERE number IN (
    SELECT number FROM holding WHERE live = 0 ORDER BY number
    LIMIT MAX(0, (SELECT COUNT(*) FROM holding WHERE live = 0) - ?)
)
"""


class Holdings:
    """The table of `db`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._bytes: int | None = None
        self.get("", "")  # so that a file without the table shows at once

    def get(self, kind: str, key: str) -> Holding | None:
        """What is held. Raises `DamagedTextError`."""
        row = self._db.execute(_GET, (kind, key)).fetchone()
        return _holding(row) if row else None

    def count(self) -> int:
        """Keys with a state that is not deleted."""
        (count,) = self._db.execute("SELECT COUNT(*) FROM holding WHERE live = 1").fetchone()
        return int(count)

    def size(self) -> int:
        """Bytes of all texts; counted once and then kept."""
        if self._bytes is None:
            (size,) = self._db.execute("SELECT TOTAL(LENGTH(text)) FROM holding").fetchone()
            self._bytes = int(size)
        return self._bytes

    def put(self, holdings: Iterable[Holding]) -> None:
        """Hold these in the place of others of the same kind and key."""
        crowds = False
        for each in holdings:
            row = _row(each)
            before = self._db.execute(_LENGTH, (each.kind, each.key)).fetchone()
            if self._bytes is not None:
                self._bytes += len(row[-1]) - (before[0] if before else 0)
            self._db.execute(_PUT, row)
            crowds |= not each.is_live
        if crowds:
            self._db.execute(_TRIM, (MOST_KEYS,))

    def forget(self) -> None:
        """There is no such transaction."""
        self._bytes = None


def read_holdings(db: sqlite3.Connection) -> Iterator[Holding]:
    """All that are sound, in the order of their storing. Raises `sqlite3.Error` where the file is damaged."""
    for row in db.execute(_ALL):
        try:
            yield _holding(row)
        except DamagedTextError:
            continue


def _row(holding: Holding) -> tuple[Any, ...]:
    kind, key, held, rank, sequence, json = holding
    text = json.encode("utf-8")
    versions = (held.reset, held.version, held.is_deleted, held.order)
    names = (held.sender, held.source, held.id)
    return (kind, key, holding.is_live, *versions, *names, rank, sequence, zlib.crc32(text), text)


def _holding(
    row: tuple[str, str, int, int, int, int, int, str, str, str, int, int, int, bytes],
) -> Holding:
    kind, key, _, reset, version, deleted, order, sender, source, id, rank, sequence, checksum, text = row
    # One bit in a row's header makes another type of a column, which SQLite gives without a word.
    if tuple(map(type, row)) != _TYPES or zlib.crc32(text) != checksum:
        raise DamagedTextError(None)
    held = Held(
        reset=reset,
        version=version,
        is_deleted=bool(deleted),
        order=order,
        sender=sender,
        source=source,
        id=id,
    )
    return Holding(kind, key, held, rank, sequence, text.decode("utf-8"))
