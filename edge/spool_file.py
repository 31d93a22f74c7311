"""The spool's file: its tables, its statements, and the lock that keeps it to one writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from edge.errors import SpoolError

FORMAT = 1
"""Version of the tables, kept in SQLite's `user_version`; 0 is an empty file."""

EPOCH_BYTES = 8
"""Random bytes in an epoch id, which names one life of the spool."""

SCHEMA = f"""
CREATE TABLE device (epoch TEXT NOT NULL);
CREATE TABLE destination (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- AUTOINCREMENT: SQLite remembers the highest number ever used, also when the table is empty again.
CREATE TABLE event (sequence INTEGER PRIMARY KEY AUTOINCREMENT, rank INTEGER NOT NULL, json TEXT NOT NULL);
CREATE TABLE delivery (
    destination INTEGER NOT NULL, rank INTEGER NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (destination, rank, sequence)
) WITHOUT ROWID;
PRAGMA user_version = {FORMAT}
""".split(";")
READ = """
SELECT sequence, json FROM delivery JOIN event USING (sequence)
WHERE destination = ? AND delivery.rank = ? AND sequence > ? ORDER BY sequence LIMIT ?
"""
DELETE_DELIVERED = """
DELETE FROM event WHERE sequence = ? AND NOT EXISTS (
    SELECT 1 FROM destination JOIN delivery ON destination = number
    WHERE delivery.rank = event.rank AND delivery.sequence = event.sequence
)
"""
BACKLOG = """
SELECT name, COUNT(sequence) FROM destination LEFT JOIN delivery ON destination = number GROUP BY number
"""


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`; the system lets go of it when the process ends, however it ends."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SpoolError(path, "another forwarder writes it", "stop that one first") from error
        yield
    finally:
        os.close(descriptor)
