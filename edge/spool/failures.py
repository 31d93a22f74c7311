"""What SQLite's errors mean for the spool."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError
from edge.spool.batch import DamagedTextError

_NO_ROOM = {
    sqlite3.SQLITE_FULL,
    # SQLite says FULL for ENOSPC only; a quota, a size limit and a disk that went read-only look like these.
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    # A block that the disk cannot read any more is as good as a torn one.
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
    # Our statements are always the same: where they do not fit any more, the schema or a key is not ours.
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}
_PRIMARY = 0xFF


@contextlib.contextmanager
def named_errors(path: Path, problem: str) -> Iterator[None]:
    """Raise the spool's errors instead of SQLite's and the system's."""
    try:
        yield
    except (DamagedTextError, UnicodeDecodeError) as error:
        # The second where SQLite's message quotes a damaged schema: Python cannot decode that.
        raise SpoolCorruptError(path, str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise _named(path, problem, error) from error


@contextlib.contextmanager
def damage_of_any_kind(path: Path) -> Iterator[None]:
    """While the file's own contents are read: what does not look as it was written is damage."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, LookupError) as error:
        raise SpoolCorruptError(path, f"it holds what nobody wrote: {error!r}") from error
    except sqlite3.OperationalError as error:
        # Python's own errors, of a text that is no UTF-8, have no code.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
            raise
        raise SpoolCorruptError(path, str(error)) from error  # the schema is not ours


def _named(path: Path, problem: str, error: sqlite3.Error | OSError) -> SpoolError:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError):
        return SpoolCorruptError(path, str(error))  # Python's own: a text in it is no UTF-8
    if code is not None and (code in _DAMAGED or code & _PRIMARY in _DAMAGED):
        return SpoolCorruptError(path, str(error))
    if code is not None and (code in _NO_ROOM or code & _PRIMARY in _NO_ROOM):
        return SpoolFullError(path, f"{problem}: {error}", "make room on the disk, or raise the capacity")
    return SpoolError(path, f"{problem}: {error}", "see that the disk works and the directory is writable")
