"""A damaged spool is replaced by what is readable of it; the forwarder always starts.

The new file is made completely before the two change places (`edge.spool.files`). All that was readable of
the damaged one is in it. Only a damaged spool loads this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edge import durable
from edge.errors import SpoolError
from edge.spool import SpoolOrigin
from edge.spool.database import (
    PAGE_BYTES,
    DeviceRow,
    TableTotals,
    connect,
    connect_to_read,
    create,
    has_tables,
    named_errors,
    new_epoch,
    transaction,
)
from edge.spool.deliveries import Deliveries, PendingQueues
from edge.spool.files import (
    CommitNote,
    CommitNotes,
    announce,
    checksum_of,
    has_log,
    log_of,
    read_note,
    readable_of,
    remove,
    unfinished_of,
)
from edge.spool.log import rebuild_log
from edge.spool.salvage import SHIFT, salvage
from edge.spool.space import START_BYTES, reserve_of
from edge.system import Host, UptimeClock

SALVAGE_S = 60.0
"""A start may take so long, seconds; what has not been read by then is in the file that is set aside."""

_POINTERS = 2
"""The page of an auto-vacuum database with the uses of the next hundred pages: it changes."""


def recover(path: Path, damage: str, system: Host) -> None:
    """Replace the spool at `path`. Raises `sqlite3.Error` and `OSError` when the disk fails as well."""
    new = unfinished_of(path)
    remove(new)
    # The salvage may have most of the reserve; the start that follows needs some.
    with contextlib.suppress(OSError):
        os.truncate(reserve_of(path), START_BYTES)
    # A note of its own: that of the damaged one is needed until the exchange. It takes its room before the
    # salvage does.
    epoch = announce(new, new_epoch(system.random_bytes)).epoch
    clock = UptimeClock(system.uptime)
    with contextlib.closing(connect(new)) as db:
        # Nobody needs it before it is complete; and without a log it takes no more room than what it holds.
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("PRAGMA synchronous = OFF")
        with transaction(db):
            create(db, SpoolOrigin("recovered"), clock, epoch)
        give_up = system.monotonic() + SALVAGE_S
        with _readable(path, new, db) as readable:
            result = salvage(readable, db, read_note(path), lambda: system.monotonic() < give_up)
        origin = _with_earlier(
            SpoolOrigin(
                "recovered",
                ", ".join([damage, *result.notes]),
                result.events,
                result.epoch,
                result.lost,
                tuple(result.lost_ranges),
            ),
            result.origin,
        )
        device = DeviceRow.read(db)
        device = device._replace(origin=json.dumps(origin), uptime_ms=max(clock(), result.uptime_ms))
        device.write(db)
        (first,) = Deliveries(db, PendingQueues(db)).first_pending() or [device.next_sequence]
    durable.sync(new)
    CommitNotes(new, CommitNote.of(device, TableTotals.unpack(device.totals), first)).close()
    durable.move(new, durable.beside(path, f".recovered-{checksum_of(new):08x}"))


def _with_earlier(origin: SpoolOrigin, earlier: SpoolOrigin) -> SpoolOrigin:
    """Add what an earlier recovery lost and has not reported yet; its numbers are lowered like all others."""
    if earlier.kind != "recovered":
        return origin
    ranges = [(first - SHIFT, last - SHIFT) for first, last in earlier.lost_ranges]
    return origin._replace(
        damage=f"{origin.damage}; before that, in epoch {earlier.lost_epoch}: {earlier.damage}",
        lost=None if origin.lost is None or earlier.lost is None else origin.lost + earlier.lost,
        lost_ranges=(*ranges, *origin.lost_ranges),
    )


@contextlib.contextmanager
def _readable(path: Path, new: Path, db: sqlite3.Connection) -> Iterator[Path]:
    """Give the database at `path` a name under which its log can be read to its end, and its schema.

    A damaged schema is replaced by that of `new`, an empty spool that is open as `db`.
    """
    copy, readable = readable_of(path), path
    remove(copy)
    # SQLite removes the log of an empty database.
    is_empty = not path.exists() or path.stat().st_size < PAGE_BYTES
    schema = {} if not is_empty and _has_schema(path) else _schema_pages(new, db)
    if schema or has_log(path):
        # Without hard links, or without room, what SQLite reads by itself has to do.
        with contextlib.suppress(OSError):
            rebuild_log(path, log_of(copy), schema)
            if is_empty:
                durable.write(copy, schema[1])
            else:
                copy.hardlink_to(path)
            readable = copy
    try:
        yield readable
    finally:
        remove(copy)


def _has_schema(path: Path) -> bool:
    try:
        with contextlib.closing(connect_to_read(path)) as db, named_errors(path, "cannot be read"):
            return has_tables(path, db)
    except (SpoolError, sqlite3.Error):
        return False


def _schema_pages(new: Path, db: sqlite3.Connection) -> dict[int, bytes]:
    """Return the pages of an empty spool that hold no rows; they are always in the same places."""
    rows = {page for (page,) in db.execute("SELECT rootpage FROM sqlite_schema")}
    content = new.read_bytes()
    pages = {
        number: content[start : start + PAGE_BYTES]
        for number, start in enumerate(range(0, len(content), PAGE_BYTES), 1)
        if number not in rows and number != _POINTERS
    }
    first = pages[1]
    return pages | {1: first[:18] + b"\2\2" + first[20:28] + bytes(12) + first[40:]}
