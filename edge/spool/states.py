"""Desired states of the device, within the caller's transaction. Loaded where there is something."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from edge.spool import DeviceState
from edge.spool.database import DamagedRowError, TableTotals, checksum
from eventplane.downlink.device import StateVersion

MOST_KEYS = 4096
"""Keys of which the device holds a state, and as many deletions and commands. Ours: a home's settings and
messages are a few hundred, and 4,096 states of 350 B are 2 MB on the disk."""

_COLUMNS = (
    "checksum, kind, key, live, reset, version, deleted, position, sender, source, id, rank, sequence, text"
)
_VERSION = ("reset", "version", "is_deleted", "order", "sender", "source", "id")
"""The members of a StateVersion in the order of the columns."""
_VERSION_OF = attrgetter(*_VERSION)
_GET = f"SELECT {_COLUMNS} FROM device_state WHERE kind = ? AND key = ?"  # noqa: S608
ALL_STATES = f"SELECT {_COLUMNS} FROM device_state ORDER BY number"  # noqa: S608
"""All rows, the oldest first; the first column is the checksum."""
_PUT_OUT = "DELETE FROM device_state WHERE kind = ? AND key = ? RETURNING checksum, LENGTH(text)"
# A new number each time: the lowest is the oldest.
_PUT = f"INSERT INTO device_state ({_COLUMNS}) VALUES ({'?, ' * 13}?)"  # noqa: S608
_TRIM = """
DELETE FROM device_state WHERE number IN (
    SELECT number FROM device_state WHERE live = 0 ORDER BY number
    LIMIT MAX(0, (SELECT COUNT(*) FROM device_state WHERE live = 0) - ?)
) RETURNING checksum, LENGTH(text)
"""


class DeviceStates:
    """The states that the cloud desires of the device, the newest of each key.

    Beside states there are deletions, so that what is older and comes late does not bring a key back, and the
    numbers of the last commands, so that none comes twice. Of these the oldest make room: nothing so old is
    still on its way.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._bytes: int | None = None

    def get(self, kind: str, key: str) -> DeviceState | None:
        """Return what the device holds of a key. Raises `DamagedRowError`."""
        row = self._db.execute(_GET, (kind, key)).fetchone()
        return checked_state(row) if row else None

    def count(self) -> int:
        """Return the number of keys with a state that is not deleted."""
        (count,) = self._db.execute("SELECT COUNT(*) FROM device_state WHERE live = 1").fetchone()
        return int(count)

    def size(self) -> int:
        """Return the bytes of all texts; they are counted once and then kept."""
        if self._bytes is None:
            (size,) = self._db.execute("SELECT TOTAL(LENGTH(text)) FROM device_state").fetchone()
            self._bytes = int(size)
        return self._bytes

    def put(self, states: Iterable[DeviceState], totals: TableTotals) -> None:
        """Hold these in the place of others of the same kind and key."""
        crowds = False
        for each in states:
            row = _row(each)
            self._forget(_PUT_OUT, (each.kind, each.key), totals)
            self._db.execute(_PUT, row)
            totals.add("device_state", row[0])
            if self._bytes is not None:
                self._bytes += len(row[-1])
            crowds |= not each.is_live
        if crowds:
            self._forget(_TRIM, (MOST_KEYS,), totals)

    def _forget(self, statement: str, values: tuple[Any, ...], totals: TableTotals) -> None:
        for code, length in self._db.execute(statement, values).fetchall():
            totals.remove("device_state", code)
            if self._bytes is not None:
                self._bytes -= length


def _row(state: DeviceState) -> tuple[Any, ...]:
    kind, key, state_version, rank, sequence, json = state
    text = json.encode("utf-8")
    # Plain texts and numbers: the checksum of a row covers their `repr`.
    version = (int(each) if isinstance(each, bool) else each for each in _VERSION_OF(state_version))
    values = (str(kind), key, int(state.is_live), *version, rank, sequence)
    return (checksum("device_state", *values, zlib.crc32(text)), *values, text)


def checked_state(row: tuple[Any, ...]) -> DeviceState:
    """Return the state in a row of `ALL_STATES`. Raises `DamagedRowError`."""
    code, *values, text = row
    if not isinstance(text, bytes) or checksum("device_state", *values, zlib.crc32(text)) != code:
        raise DamagedRowError("a state of the device")
    kind, key, _, *version, rank, sequence = values
    members = dict(zip(_VERSION, version, strict=True))
    state_version = StateVersion(**members | {"is_deleted": bool(members["is_deleted"])})
    return DeviceState(kind, key, state_version, rank, sequence, text.decode("utf-8"))
