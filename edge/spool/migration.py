"""From formats 1 to 4 to today's, in the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from edge.life_clock import LifeClock
from edge.spool.deliveries import Deliveries
from edge.spool.lanes import Lanes
from edge.spool.records import Arrival, Birth
from edge.spool.schema import FROM_FORMAT, SCHEMA
from eventplane.event_keys import KEY_BYTES

_CHUNK = 100
_READ = """
SELECT sequence, rank, json, (
    SELECT group_concat(name, char(10)) FROM old_destination JOIN old_delivery ON destination = number
    WHERE old_delivery.rank = old_event.rank AND old_delivery.sequence = old_event.sequence
) FROM old_event ORDER BY sequence
"""


def migrate(db: sqlite3.Connection, found: int, life: LifeClock) -> None:
    """Bring a file of format `found` up to date."""
    if found == 1:
        _from_format_1(db, life)
    else:
        for statement in FROM_FORMAT[found]:
            db.execute(statement)


def _from_format_1(db: sqlite3.Connection, life: LifeClock) -> None:
    """Keep the epoch, every number and every pending delivery; their age counts from now."""
    for table in ("device", "destination", "event", "delivery"):
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in SCHEMA:
        db.execute(statement)
    (epoch,) = db.execute("SELECT epoch FROM old_device").fetchone()
    used = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'old_event'").fetchone()
    db.execute(
        "INSERT INTO device VALUES (?, ?, ?, ?, ?, ?)",
        (epoch, (used[0] if used else 0) + 1, life(), *life.uptime(), json.dumps(Birth("resumed"))),
    )
    lanes, deliveries = Lanes(db), Deliveries(db)
    for chunk in _chunks(db):
        deliveries.add(chunk, life(), lanes.draft)
    lanes.write()
    lanes.keep()
    # No manifest can tell keys that nobody kept.
    lanes.close_statements()
    lanes.write()
    for table in ("device", "destination", "event", "delivery"):
        db.execute(f"DROP TABLE old_{table}")


def _chunks(db: sqlite3.Connection) -> Iterator[list[Arrival]]:
    chunk = []
    for sequence, rank, text, destinations in db.execute(_READ):
        chunk.append(Arrival(sequence, rank, text, dict.fromkeys(destinations.split("\n")), bytes(KEY_BYTES)))
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    yield chunk
