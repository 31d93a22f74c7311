"""The spool's tables, format 5. Every commit writes few pages: that is why there are few tables."""

from __future__ import annotations

FORMAT = 5
"""Version of the tables, kept in SQLite's `user_version`; 0 is an empty file."""

EPOCH_BYTES = 8
"""Random bytes in an epoch id, which names one life of the spool."""

HOLDING_SCHEMA = """
-- What the cloud desires of the device, by kind and key: the newest state, the number of the last command.
-- `rank` and `sequence` are those of its delivery on the device. What has a higher `number` is more recent.
CREATE TABLE holding (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL,
    live INTEGER NOT NULL, -- a state that is not deleted
    reset INTEGER NOT NULL, -- the last one of the key's versions: before it nothing counts
    version INTEGER NOT NULL, deleted INTEGER NOT NULL, position INTEGER NOT NULL,
    sender TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
    rank INTEGER NOT NULL, sequence INTEGER NOT NULL,
    checksum INTEGER NOT NULL, text BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX holding_age ON holding (live, number)
"""

COUNTER_SCHEMA = """
-- The last number of each counter of an ordered inbox, within this epoch.
CREATE TABLE counter (name TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID
"""

SCHEMA = f"""
CREATE TABLE device (
    epoch TEXT NOT NULL, next_sequence INTEGER NOT NULL,
    life_ms INTEGER NOT NULL, boot TEXT NOT NULL, uptime_ms INTEGER NOT NULL,
    birth TEXT NOT NULL -- JSON of a Birth until it has been reported, then ''
);
-- A destination at a rank: how many deliveries wait, and what was stored since the last closing.
CREATE TABLE lane (
    number INTEGER PRIMARY KEY, destination TEXT NOT NULL, rank INTEGER NOT NULL,
    pending INTEGER NOT NULL, newest INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, digest BLOB NOT NULL
);
-- Events of one rank and one way. A batch is known by its last sequence. It says by itself where it goes
-- (addresses, one a line), so that it survives damage to the other tables.
CREATE TABLE batch (
    last INTEGER PRIMARY KEY, rank INTEGER NOT NULL, stored_ms INTEGER NOT NULL,
    destinations TEXT NOT NULL, texts BLOB NOT NULL
);
-- Which events of a batch a lane still waits for. For one lane batches never overlap.
CREATE TABLE delivery (
    lane INTEGER NOT NULL, last INTEGER NOT NULL, waiting BLOB NOT NULL, PRIMARY KEY (lane, last)
) WITHOUT ROWID;
CREATE TABLE recent (block INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE discard (
    destination TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (destination, outcome, reason, first)
) WITHOUT ROWID;
{HOLDING_SCHEMA};
{COUNTER_SCHEMA};
PRAGMA user_version = {FORMAT}
""".split(";")

FROM_FORMAT = {
    2: f"{HOLDING_SCHEMA};{COUNTER_SCHEMA};PRAGMA user_version = {FORMAT}".split(";"),
    3: f"""
ALTER TABLE holding ADD COLUMN reset INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holding ADD COLUMN sender TEXT NOT NULL DEFAULT '';
{COUNTER_SCHEMA};
PRAGMA user_version = {FORMAT}
""".split(";"),
    4: f"{COUNTER_SCHEMA};PRAGMA user_version = {FORMAT}".split(";"),
}
"""What formats 2 to 4 lack."""

BACKLOG = "SELECT destination, SUM(pending) FROM lane GROUP BY destination"
