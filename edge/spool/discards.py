"""Deliveries that ended without a delivery, counted in the commit that ends them until they are reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import groupby

from edge.spool.batch import DamagedTextError
from edge.spool.records import Discard, DiscardTally
from eventplane.delivery import Outcome

MOST_RANGES = 1000
"""Ranges that are told, and closed, at a time: a report has to fit into an event."""

_OLDEST = f"SELECT * FROM discard ORDER BY destination, outcome, reason, first LIMIT {MOST_RANGES}"  # noqa: S608
_CLOSE = f"""
DELETE FROM discard WHERE (destination, outcome, reason, first) IN (
    SELECT destination, outcome, reason, first FROM ({_OLDEST})
)
"""  # noqa: S608
_TOUCHING = """
SELECT first, last FROM discard
WHERE destination = ? AND outcome = ? AND reason = ? AND first <= ? ORDER BY first DESC LIMIT 2
"""


def add_discards(db: sqlite3.Connection, discarded: Iterable[Discard]) -> None:
    """Count them, adjoining sequences as one range."""
    kinds = sorted((each.delivery.destination, each.outcome.value, each.reason, each.delivery.sequence)
                   for each in discarded)  # fmt: skip
    for kind, group in groupby(kinds, key=lambda each: each[:3]):
        for first, last in merged((each[3], each[3]) for each in group):
            _add(db, kind, first, last)


def read_discards(db: sqlite3.Connection) -> list[DiscardTally]:
    """The next to report, `MOST_RANGES` at most."""
    tallies = []
    for kind, group in groupby(db.execute(_OLDEST), key=lambda row: row[:3]):
        destination, outcome, reason = kind
        ranges = tuple((first, last) for *_, first, last in group)
        count = sum(last - first + 1 for first, last in ranges)
        tallies.append(DiscardTally(destination, Outcome(outcome), reason, count, ranges))
    return tallies


def forget_discards(db: sqlite3.Connection) -> None:
    """Forget what `read_discards` tells."""
    db.execute(_CLOSE)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges, adjoining ones as one."""
    result: list[tuple[int, int]] = []
    for first, last in ranges:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def _add(db: sqlite3.Connection, kind: tuple[str, str, str], first: int, last: int) -> None:
    """Join the range with its neighbours on both sides."""
    touching = db.execute(_TOUCHING, (*kind, last + 1)).fetchall()
    if not all(isinstance(each, int) for row in touching for each in row):
        raise DamagedTextError(None)
    for known_first, known_last in touching:
        if known_last >= first - 1:
            db.execute(
                "DELETE FROM discard WHERE destination = ? AND outcome = ? AND reason = ? AND first = ?",
                (*kind, known_first),
            )
            first, last = min(first, known_first), max(last, known_last)
    db.execute("INSERT INTO discard VALUES (?, ?, ?, ?, ?)", (*kind, first, last))
