"""Two copies of one small SQLite file: each commit goes to both, and one heals the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eventplane_client.errors import StateError
from eventplane_client.notices import Listener, StateCreated, StateHealed, StateLost

FORMAT = 1
"""Version of the tables, kept in SQLite's `user_version`."""

SCHEMA = """
-- The last claims, in order. `session` is that of the reader that had it in hand, `tries` how often one had.
CREATE TABLE {schema}.seen (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
    session INTEGER NOT NULL, tries INTEGER NOT NULL, done INTEGER NOT NULL
);
CREATE TABLE {schema}.epoch (source TEXT PRIMARY KEY, epoch TEXT NOT NULL) WITHOUT ROWID;
-- `commits` tells which copy is ahead: a power cut may fall between the two.
CREATE TABLE {schema}.state (commits INTEGER NOT NULL, session INTEGER NOT NULL);
INSERT INTO {schema}.state VALUES (0, 0);
PRAGMA {schema}.user_version = 1
"""

POSITIONS = """
CREATE TABLE IF NOT EXISTS {schema}.position (
    number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE, position INTEGER NOT NULL
)
"""
"""How far each stream has come; `number` grows with each move. Older files get it when they are opened."""

_PAGE_BYTES = 1024
_WAL_BYTES = 256 * 1024
_SIDES = ("-wal", "-shm", "")


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is found at `path`: how many `commits`, or the `damage`; neither where nothing is."""

    path: Path
    commits: int | None = None
    damage: str | None = None


def copy_of(path: Path) -> Path:
    """Return the path of the second copy."""
    return path.with_name(path.name + ".copy")


@contextlib.contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Raise `StateError` instead of SQLite's and the system's."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StateError(
            path, str(error), "see that the disk has room and the directory is writable"
        ) from error


def lock(path: Path) -> int:
    """The descriptor that keeps `path` to this process. Raises `StateError` when another has it."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StateError(path, "another reader uses it", "stop that one, or name another file") from error
    return descriptor


def open_copies(path: Path, on_notice: Listener) -> sqlite3.Connection:
    """Both copies, healthy and equal, as `main` and `copy` of one connection."""
    found = [_look(path), _look(copy_of(path))]
    healthy = [each for each in found if each.commits is not None]
    if healthy:
        best = max(healthy, key=lambda each: each.commits or 0)
        for each in found:
            if each.commits != best.commits:
                _heal(each, best, on_notice)
    else:
        _begin_anew(found, on_notice)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("ATTACH ? AS copy", (str(copy_of(path)),))
        for schema in ("main", "copy"):
            _set_up(db, schema)
        if not healthy:
            _create(db)
        with transaction(db):
            for schema in ("main", "copy"):
                db.execute(POSITIONS.format(schema=schema))
    except BaseException:
        db.close()
        raise
    return db


def _look(path: Path) -> _Copy:
    if not path.exists():
        return _Copy(path)
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                return _Copy(path, damage=str(verdict))
            (found,) = db.execute("PRAGMA user_version").fetchone()
            if found != FORMAT:
                # Nothing was ever committed to a file without tables.
                empty = not db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]
                return _Copy(path, damage=None if empty else f"its format is {found}, not {FORMAT}")
            ((commits,),) = db.execute("SELECT commits FROM state").fetchall()
            return _Copy(path, commits=int(commits))
    except (sqlite3.Error, ValueError, TypeError) as error:
        return _Copy(path, damage=str(error))


def _heal(bad: _Copy, good: _Copy, on_notice: Listener) -> None:
    """Make `bad` anew from `good`. A cut-off repetition begins again."""
    new = bad.path.with_name(bad.path.name + ".healing")
    _remove(new)
    with (
        contextlib.closing(sqlite3.connect(good.path)) as source,
        contextlib.closing(sqlite3.connect(new)) as db,
    ):
        source.backup(db)
    _sync(new)
    _set_aside(bad)
    new.replace(bad.path)
    _sync(bad.path.parent)
    behind = (good.commits or 0) - (bad.commits or 0)
    if bad.commits is None or behind > 1:
        missing = "it was missing" if bad.damage is None else bad.damage
        on_notice(
            StateHealed(str(bad.path), f"{behind} commits short" if bad.commits is not None else missing)
        )


def _begin_anew(found: list[_Copy], on_notice: Listener) -> None:
    damages = [each.damage for each in found if each.damage]
    for each in found:
        _set_aside(each)
    _sync(found[0].path.parent)
    place = str(found[0].path)
    on_notice(StateLost(place, "; ".join(damages)) if damages else StateCreated(place))


def _set_aside(bad: _Copy) -> None:
    """One damaged file is kept for inspection. Its log goes first: the new file must never meet it."""
    for side in _SIDES:
        file = Path(f"{bad.path}{side}")
        if file.exists():
            if bad.damage:
                file.replace(f"{bad.path}.damaged{side}")
            elif bad.commits is None or side:
                file.unlink()
    _sync(bad.path.parent)


def _set_up(db: sqlite3.Connection, schema: str) -> None:
    db.execute(f"PRAGMA {schema}.page_size = {_PAGE_BYTES}")
    db.execute(f"PRAGMA {schema}.journal_mode = WAL")
    db.execute(f"PRAGMA {schema}.synchronous = FULL")
    db.execute(f"PRAGMA {schema}.journal_size_limit = {_WAL_BYTES}")


def _create(db: sqlite3.Connection) -> None:
    with transaction(db):
        for schema in ("main", "copy"):
            for statement in SCHEMA.format(schema=schema).split(";"):
                db.execute(statement)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, in each copy."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _remove(database: Path) -> None:
    for side in _SIDES:
        Path(f"{database}{side}").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
