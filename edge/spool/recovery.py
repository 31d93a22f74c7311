"""A damaged spool is replaced by what is readable of it; the forwarder always starts.

The new file is made completely before the two change places. All that was readable of the damaged one is in
it. That one, or a spool of another thing, is set aside for inspection; older ones are deleted beyond the
capacity. An exchange that is cut off is finished at the next start. Only such spools and tools load this
module.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
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
    START_BYTES,
    CommitNote,
    CommitNotes,
    announce,
    has_log,
    log_of,
    marker_of,
    note_of,
    read_note,
    readable_of,
    reserve_of,
    unfinished_of,
)
from edge.spool.log import rebuild_log
from edge.spool.salvage import SHIFT, salvage
from edge.system import Host, UptimeClock

SALVAGE_S = 60.0
"""A start may take so long, seconds; what has not been read by then is in the file that is set aside."""

_PART_BYTES = 1 << 20
_SIDES = ("", "-wal", "-shm")
_DAMAGED = r"\.damaged-(\d+)-\d+T\d+Z"

_POINTERS = 2
"""The page of an auto-vacuum database with the uses of the next hundred pages: it changes."""


def recover(path: Path, damage: str, system: Host) -> None:
    """Replace the spool at `path`. Raises `sqlite3.Error` and `OSError` when the disk fails as well."""
    new = unfinished_of(path)
    _remove(new)
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
    durable.move(new, durable.beside(path, f".recovered-{_checksum_of(new):08x}"))


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
    _remove(copy)
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
        _remove(copy)


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


def finish_recovery(path: Path, capacity_bytes: int, system: Host) -> None:
    """Exchange a damaged spool for its recovered one, if there is one. Repeats what was cut off."""
    new = unfinished_of(path)
    _remove(readable_of(path))
    _remove(new)
    recovered = next((each for _, each in durable.numbered(path, r"\.recovered-().*")), None)
    if recovered is None:
        note_of(new).unlink(missing_ok=True)
        return
    if path.exists() and not recovered.name.endswith(f"-{_checksum_of(recovered):08x}"):
        # It was damaged as well; what it was made from is still there.
        marker_of(path).touch()
        recovered.unlink()
        return
    _set_aside(path, system)
    # From its first moment on the new one has its note; the repetition of a cut exchange finds it there.
    with contextlib.suppress(FileNotFoundError):
        durable.move(note_of(new), note_of(path))
    durable.move(recovered, path)
    _prune(path, capacity_bytes)


def set_aside_other(path: Path, capacity_bytes: int, system: Host) -> None:
    """Keep the spool of another thing as a damaged one is kept. Raises `OSError`."""
    _set_aside(path, system)
    note_of(path).unlink(missing_ok=True)
    _prune(path, capacity_bytes)


def _set_aside(path: Path, system: Host) -> None:
    aside = _aside(path, system)
    for side in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{side}").replace(f"{aside}{side}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    marker_of(path).unlink(missing_ok=True)
    # Another file at this place must never meet its log.
    durable.sync(path.parent)


def _checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            checksum = zlib.crc32(part, checksum)
    return checksum


def _aside(path: Path, system: Host) -> Path:
    for _, log in durable.numbered(path, rf"{_DAMAGED}-wal"):
        whole = log.with_name(log.name.removesuffix("-wal"))
        if not (whole.exists() or log_of(path).exists()):
            return whole  # the power was cut before the database followed its log
    number = max((number for number, _ in durable.numbered(path, _DAMAGED)), default=0) + 1
    stamp = system.now().strftime("%Y%m%dT%H%M%SZ")
    return durable.beside(path, f".damaged-{number:04d}-{stamp}")


def _prune(path: Path, capacity_bytes: int) -> None:
    durable.prune([_files(aside) for _, aside in durable.numbered(path, _DAMAGED)], capacity_bytes)


def _files(database: Path) -> list[Path]:
    return [each for each in (Path(f"{database}{side}") for side in _SIDES) if each.exists()]


def _remove(database: Path) -> None:
    """Delete a database with its log."""
    for each in _files(database):
        each.unlink()


def read_backlog(path: Path) -> dict[str, int]:
    """Return the number of pending deliveries by destination of the spool at `path`, also while it is in use.

    Raises `SpoolError` when there is no spool.
    """
    try:
        with contextlib.closing(connect_to_read(path)) as db:
            return dict(db.execute("SELECT destination, SUM(pending) FROM queue GROUP BY destination"))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise SpoolError(
            path, f"cannot be read: {error}", "name the spool of a forwarder that has run"
        ) from error
