"""From format 1 to today's, in the caller's transaction."""

from __future__ import annotations

import json
import sqlite3

from edge.life_clock import LifeClock
from edge.spool.records import Birth
from edge.spool.schema import SCHEMA

_OLD = ("device", "event", "delivery")


def migrate(db: sqlite3.Connection, life: LifeClock) -> None:
    """Keep the epoch, every number and every pending delivery; their age counts from now."""
    for table in _OLD:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in SCHEMA:
        db.execute(statement)
    now = {"life": life(), "boot": life.uptime().boot, "uptime": life.uptime().ms}
    db.execute(
        """
        INSERT INTO device SELECT
            epoch, COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'old_event'), 0) + 1,
            :life, :boot, :uptime, :birth
        FROM old_device
        """,
        {**now, "birth": json.dumps(Birth("resumed"))},
    )
    db.execute(
        """
        INSERT INTO lane SELECT NULL, name, rank, COUNT(*), MAX(sequence), 0, 0, 0, zeroblob(16)
        FROM old_delivery JOIN destination ON number = destination GROUP BY destination, rank
        """
    )
    db.execute(
        """
        INSERT INTO delivery SELECT lane.number, sequence, NULL FROM old_delivery
        JOIN destination ON destination.number = old_delivery.destination
        JOIN lane ON lane.destination = name AND lane.rank = old_delivery.rank
        """
    )
    db.execute(
        """
        INSERT INTO event SELECT sequence, rank, :life, (
            SELECT group_concat(name, char(10)) FROM destination JOIN old_delivery ON destination = number
            WHERE old_delivery.rank = old_event.rank AND old_delivery.sequence = old_event.sequence
        ), json FROM old_event
        """,
        now,
    )
    for table in (*(f"old_{each}" for each in _OLD), "destination"):
        db.execute(f"DROP TABLE {table}")
