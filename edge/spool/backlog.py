"""A look at a spool from outside, also while a forwarder works on it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from edge.errors import SpoolError
from edge.spool.schema import BACKLOG


def read_backlog(path: Path) -> dict[str, int]:
    """Pending deliveries by destination of the spool at `path`.

    Raises `SpoolError` when there is no spool.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            return dict(db.execute(BACKLOG))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise SpoolError(
            path, f"cannot be read: {error}", "name the spool of a forwarder that has run"
        ) from error
