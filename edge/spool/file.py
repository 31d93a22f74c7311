"""The spool's file: how SQLite is set up, the lock that keeps it to one writer, a new file's tables."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edge.errors import SpoolCorruptError, SpoolError
from edge.life_clock import LifeClock
from edge.spool.migration import migrate
from edge.spool.records import Birth
from edge.spool.schema import EPOCH_BYTES, FORMAT, FROM_FORMAT, SCHEMA

PAGE_BYTES = 512
"""Measured: a commit of one event writes half of what it does with 1024, a bulk the same."""

WAL_BYTES = 4 * 1024 * 1024
"""What is delivered while it is in the log is hardly written to the main file; a start reads all of it."""

_PATIENCE_S = 0.5
"""How long somebody who looks at the file may hold us up, seconds."""

_SANE_FORMATS = 32
"""A higher number in the header is no newer format, it is damage."""


def check_header(path: Path) -> None:
    """Raise `SpoolCorruptError` for a number that SQLite takes for a file of the future, and never writes."""
    if path.is_file():
        with path.open("rb") as file:
            versions = file.read(20)[18:]
        if any(each not in (1, 2) for each in versions):
            raise SpoolCorruptError(path, "its header is not SQLite's")


def connect(path: Path) -> sqlite3.Connection:
    """The database at `path`, made when it is not there. Takes the same time whatever is in it."""
    db = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE_S)
    try:
        # The first two count for a new file only, and before the journal's mode.
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // PAGE_BYTES}")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        # Debian's SQLite overwrites what is deleted, page by page.
        db.execute("PRAGMA secure_delete = OFF")
    except BaseException:
        db.close()
        raise
    return db


def prepare(path: Path, db: sqlite3.Connection, life: LifeClock) -> bool:
    """Make the tables when there are none, bring those of an older format up to date. Whether it is new.

    Raises `SpoolError` for a newer format, which is left as it is, and `SpoolCorruptError`.
    """
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found == FORMAT:
        return False
    if FORMAT < found < _SANE_FORMATS:
        raise SpoolError(
            path, f"its format is {found}, not {FORMAT}", "run the program that wrote it, or a newer one"
        )
    (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
    with transaction(db):
        if found == 0 and not tables:
            create(db, Birth("created"), life)
            return True
        if found not in (1, *FROM_FORMAT):
            raise SpoolCorruptError(path, f"it has {tables} tables of format {found}")
        migrate(db, found, life)
        return False


def create(db: sqlite3.Connection, birth: Birth, life: LifeClock) -> None:
    """The tables of a new epoch."""
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(
        "INSERT INTO device VALUES (?, 1, ?, ?, ?, ?)",
        (secrets.token_hex(EPOCH_BYTES), life(), *life.uptime(), json.dumps(birth)),
    )


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
