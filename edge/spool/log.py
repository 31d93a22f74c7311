"""Tells a damaged write-ahead log from one that a power cut has torn; SQLite takes both for the log's end.

A power cut can tear the transaction that was being written, no other. So at most one commit stands behind
the frame where SQLite stopped; with more of them, commits that were acknowledged are missing. The formats
are those of https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

_HEADER = struct.Struct(">16x8s8x")  # the salts, which each round of the log has anew
_FRAME = struct.Struct(">4xL8s8x")  # the pages of the database after a commit, else 0; the salts


def misses_commits(path: Path, db: sqlite3.Connection, page_bytes: int) -> bool:
    """Whether the log of the newly opened `db` at `path` holds commits that SQLite did not reach."""
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size < _HEADER.size:
        return False
    _, valid, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    step = _FRAME.size + page_bytes
    commits = 0
    with log.open("rb") as file:
        (salts,) = _HEADER.unpack(file.read(_HEADER.size))
        place = _HEADER.size + max(0, valid) * step
        while commits <= 1:
            file.seek(place)
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                return False
            pages, found = _FRAME.unpack(frame)
            commits += found == salts and pages > 0
            place += step
    return True
