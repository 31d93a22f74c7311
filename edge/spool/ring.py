"""The keys of the events stored last, so that a repetition is known after a crash as well.

A ring of blocks, in place: an event's sequence says where its key goes, a commit writes one or two pages,
and the table never grows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from edge.spool.batch import DamagedTextError
from eventplane.event_keys import KEY_BYTES

KEPT_KEYS = 8192
"""Keys that are kept at least; 16 bytes each on the disk."""

_BLOCK_KEYS = 16
_BLOCKS = KEPT_KEYS // _BLOCK_KEYS + 1


def add_keys(db: sqlite3.Connection, first: int, keys: Sequence[bytes]) -> None:
    """Remember the keys of the events from sequence `first` on."""
    if not keys:
        return
    block, before = divmod(first, _BLOCK_KEYS)
    # The block may be as old as the ring is long: only what lies before `first` is of this round.
    joined = _read(db, block)[: before * KEY_BYTES].ljust(before * KEY_BYTES, b"\0") + b"".join(keys)
    step = _BLOCK_KEYS * KEY_BYTES
    db.executemany(
        "INSERT OR REPLACE INTO recent VALUES (?, ?)",
        (
            ((block + n) % _BLOCKS, joined[start : start + step])
            for n, start in enumerate(range(0, len(joined), step))
        ),
    )


def read_keys(db: sqlite3.Connection, next_sequence: int, count: int) -> list[bytes]:
    """The keys of the last `count` events, or as many as are kept, oldest first."""
    first = max(1, next_sequence - min(count, KEPT_KEYS))
    keys: list[bytes] = []
    for block in range(first // _BLOCK_KEYS, (next_sequence - 1) // _BLOCK_KEYS + 1):
        row = _read(db, block)
        # Sequence 0 is never used, so block 0 starts with a filler.
        start = max(0, first - block * _BLOCK_KEYS)
        end = min(_BLOCK_KEYS, next_sequence - block * _BLOCK_KEYS)
        keys += (row[n * KEY_BYTES : (n + 1) * KEY_BYTES] for n in range(start, end))
    return [each for each in keys if any(each)]  # none were known before a migration


def _read(db: sqlite3.Connection, block: int) -> bytes:
    row = db.execute("SELECT keys FROM recent WHERE block = ?", (block % _BLOCKS,)).fetchone()
    if row is None:
        return b""
    if not isinstance(row[0], bytes):
        raise DamagedTextError(None)
    return row[0]
