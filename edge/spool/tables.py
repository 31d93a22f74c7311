"""The small tables, within the caller's transaction: recent keys, counters, discards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from edge.spool import Discard, LossReport
from edge.spool.database import DamagedRowError, TableTotals, checksum
from eventplane.device_reports import KEY_BYTES
from eventplane.reasons import Outcome

RECENT_EVENTS = 65_536
"""Among how many stored events a repetition is recognised at least, also after a crash: as many as MQTT has
packet ids. No sender and no broker can have more in flight.

No window of a broker bounds better what it sends again after a restart. Mosquitto 2.0.11 hands over a whole
`max_inflight_messages` for each PUBACK, and reads one PUBACK while it writes hundreds of messages (measured).
On the disk 16 bytes each, in memory about 1.4 MiB, up to twice that after that many events.
"""

MOST_RANGES = 1000
"""Ranges of discards that are reported, and closed, at a time: a report has to fit into an event."""

_BLOCK_KEYS = 16

_SLOTS = RECENT_EVENTS // _BLOCK_KEYS + 1

_OLDEST = f"SELECT * FROM discard ORDER BY destination, outcome, reason, first LIMIT {MOST_RANGES}"  # noqa: S608
_TOUCHING = """
SELECT * FROM discard
WHERE destination = ? AND outcome = ? AND reason = ? AND first <= ? ORDER BY first DESC LIMIT 2
"""
_FORGET = "DELETE FROM discard WHERE destination = ? AND outcome = ? AND reason = ? AND first = ?"


class StoredKeys:
    """The keys of the events stored last: a ring of blocks, in place.

    A sequence determines the place of its key, so a commit writes one or two pages.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # The keys of the block in which the keys from `_next` on come, so that it need not be read.
        self._next = 0
        self._known = b""

    def add(self, first: int, keys: Sequence[bytes]) -> None:
        """Remember the keys of the events from sequence `first` on."""
        block, before = divmod(first, _BLOCK_KEYS)
        if first == 1:
            known = bytes(KEY_BYTES)  # sequence 0 is never used: block 0 starts with a filler
        elif first == self._next:
            known = self._known
        else:
            row = self._db.execute("SELECT * FROM recent WHERE slot = ?", (block % _SLOTS,)).fetchone()
            known = _checked_keys(row, block, before) if before else b""
        joined = known + b"".join(keys)
        step = _BLOCK_KEYS * KEY_BYTES
        for number, start in enumerate(range(0, len(joined), step), block):
            values = (number % _SLOTS, number, joined[start : start + step])
            code = checksum("recent", *values)
            self._db.execute("INSERT OR REPLACE INTO recent VALUES (?, ?, ?, ?)", (*values, code))
        self._next = first + len(keys)
        self._known = joined[len(joined) - self._next % _BLOCK_KEYS * KEY_BYTES :]

    def read(self, next_sequence: int, count: int) -> list[bytes]:
        """Return the keys of the last `count` events, or as many as are kept, oldest first.

        Raises `DamagedRowError`.
        """
        first = max(1, next_sequence - min(count, RECENT_EVENTS))
        if first == next_sequence:
            return []
        found = {row[1]: row for row in self._db.execute("SELECT * FROM recent")}
        keys: list[bytes] = []
        for block in range(first // _BLOCK_KEYS, (next_sequence - 1) // _BLOCK_KEYS + 1):
            start = max(0, first - block * _BLOCK_KEYS)
            end = min(_BLOCK_KEYS, next_sequence - block * _BLOCK_KEYS)
            row = _checked_keys(found.get(block), block, end)
            keys += (row[n * KEY_BYTES : (n + 1) * KEY_BYTES] for n in range(start, end))
        return keys


def _checked_keys(row: Sequence[Any] | None, block: int, count: int) -> bytes:
    """Return the first `count` keys of a block. What is not of this round of the ring is damage as well."""
    if row is None or row[1] != block or checksum("recent", *row[:-1]) != row[-1]:
        raise DamagedRowError(f"block {block} of the recent keys")
    keys: bytes = row[2][: count * KEY_BYTES]
    if len(keys) != count * KEY_BYTES:
        raise DamagedRowError(f"block {block} of the recent keys")
    return keys


def read_counters(db: sqlite3.Connection) -> dict[str, int]:
    """Return the last number of each counter. Raises `DamagedRowError`."""
    found = {}
    for name, last, code in db.execute("SELECT * FROM counter"):
        if checksum("counter", name, last) != code:
            raise DamagedRowError(f"counter {name!r}")
        found[name] = last
    return found


def put_counters(
    db: sqlite3.Connection, before: Mapping[str, int], after: Mapping[str, int], totals: TableTotals
) -> None:
    """Write the counters `after`, of which some had a number `before`."""
    for name, last in after.items():
        code = checksum("counter", name, last)
        db.execute("INSERT OR REPLACE INTO counter VALUES (?, ?, ?)", (name, last, code))
        if name in before:
            totals.remove("counter", checksum("counter", name, before[name]))
        totals.add("counter", code)


def add_discards(db: sqlite3.Connection, discarded: Iterable[Discard], totals: TableTotals) -> None:
    """Count deliveries that ended without a delivery, adjoining sequences as one range."""
    # Plain texts: the checksum of a row covers their `repr`.
    kinds = sorted((each.delivery.destination, str(each.outcome), str(each.reason), each.delivery.sequence)
                   for each in discarded)  # fmt: skip
    for kind, group in groupby(kinds, key=lambda each: each[:3]):
        for first, last in merged((each[3], each[3]) for each in group):
            add_discard_range(db, kind, first, last, totals)


def add_discard_range(
    db: sqlite3.Connection, kind: tuple[str, str, str], first: int, last: int, totals: TableTotals
) -> None:
    """Count one range, joined with its neighbours on both sides. `kind`: destination, outcome, reason."""
    for row in db.execute(_TOUCHING, (*kind, last + 1)).fetchall():
        *_, known_first, known_last = checked_discard(row)
        if known_last >= first - 1:
            db.execute(_FORGET, (*kind, known_first))
            totals.remove("discard", row[-1])
            first, last = min(first, known_first), max(last, known_last)
    values = (*kind, first, last)
    code = checksum("discard", *values)
    db.execute("INSERT INTO discard VALUES (?, ?, ?, ?, ?, ?)", (*values, code))
    totals.add("discard", code)


def read_loss_reports(db: sqlite3.Connection) -> list[LossReport]:
    """Return the next to report, `MOST_RANGES` at most. Raises `DamagedRowError`."""
    tallies = []
    for kind, group in groupby(map(checked_discard, db.execute(_OLDEST)), key=lambda row: row[:3]):
        destination, outcome, reason = kind
        ranges = tuple((first, last) for *_, first, last in group)
        count = sum(last - first + 1 for first, last in ranges)
        tallies.append(LossReport(destination, Outcome(outcome), reason, count, ranges))
    return tallies


def forget_loss_reports(db: sqlite3.Connection, totals: TableTotals) -> None:
    """Forget what `read_loss_reports` returns."""
    for destination, outcome, reason, first, _, code in db.execute(_OLDEST).fetchall():
        db.execute(_FORGET, (destination, outcome, reason, first))
        totals.remove("discard", code)


def checked_discard(row: tuple[Any, ...]) -> tuple[str, str, str, int, int]:
    """Return a row of the table `discard` without its checksum. Raises `DamagedRowError`."""
    destination, outcome, reason, first, last, code = row
    if checksum("discard", destination, outcome, reason, first, last) != code:
        raise DamagedRowError("a range of discards")
    return destination, outcome, reason, first, last


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ascending ranges that overlap or adjoin."""
    result: list[tuple[int, int]] = []
    for first, last in ranges:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result
