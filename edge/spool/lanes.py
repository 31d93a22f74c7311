"""The counters of each destination and rank: in memory to ask, in one small table to last.

Nothing about a backlog is ever counted again, so a start takes the same time whatever waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

from edge.spool.records import BEFORE_EVERYTHING, Statement
from eventplane.event_keys import KEY_BYTES

_DIGESTS = 1 << (8 * KEY_BYTES)


@dataclass(slots=True)
class LaneRow:
    """One destination at one rank. `first`, `last`, `count`, `digest` are since the last closing."""

    number: int
    destination: str
    rank: int
    pending: int = 0
    newest: int = BEFORE_EVERYTHING
    first: int = 0
    last: int = 0
    count: int = 0
    digest: int = 0

    def stored(self, sequence: int, key: bytes) -> None:
        """One more delivery waits."""
        self.pending += 1
        self.newest = max(self.newest, sequence)
        self.first = min(self.first, sequence) if self.count else sequence
        self.last = max(self.last, sequence) if self.count else sequence
        self.count += 1
        self.digest = (self.digest + int.from_bytes(key, "big")) % _DIGESTS


class Lanes:
    """All lanes. Changes are made to drafts, which `keep` makes valid once they are committed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._rows: dict[tuple[str, int], LaneRow] = {}
        self._drafts: dict[tuple[str, int], LaneRow] = {}
        for *fields, digest in db.execute("SELECT * FROM lane ORDER BY number"):
            row = LaneRow(*fields)
            row.digest = int.from_bytes(digest, "big")
            self._rows[row.destination, row.rank] = row

    def __iter__(self) -> Iterator[LaneRow]:
        return iter(self._rows.values())

    def get(self, destination: str, rank: int) -> LaneRow | None:
        """The committed lane, None when nothing was ever stored for it."""
        return self._rows.get((destination, rank))

    def pending(self) -> int:
        """How many deliveries wait, in all lanes."""
        return sum(row.pending for row in self._rows.values())

    def draft(self, destination: str, rank: int) -> LaneRow:
        """A copy to change, of a lane that is made when there is none."""
        key = (destination, rank)
        if key not in self._drafts:
            known = self._rows.get(key)
            new = len({*self._rows, *self._drafts}) + 1
            self._drafts[key] = replace(known) if known else LaneRow(new, destination, rank)
        return self._drafts[key]

    def close_statements(self) -> None:
        """Start counting anew what is stored."""
        for row in list(self._rows.values()):
            if row.count:
                draft = self.draft(row.destination, row.rank)
                draft.first = draft.last = draft.count = draft.digest = 0

    def write(self) -> None:
        """Put the drafts into the transaction."""
        self._db.executemany(
            "INSERT OR REPLACE INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((*astuple(row)[:-1], row.digest.to_bytes(KEY_BYTES, "big")) for row in self._drafts.values()),
        )

    def keep(self) -> None:
        """The transaction is committed."""
        self._rows.update(self._drafts)
        self._drafts.clear()

    def forget(self) -> None:
        """There is no such transaction."""
        self._drafts.clear()

    def statements(self) -> list[Statement]:
        """What was stored since the last closing, by destination."""
        found: dict[str, Statement] = {}
        for row in self._rows.values():
            if row.count:
                this = Statement(row.destination, row.first, row.last, row.count, row.digest)
                known = found.get(row.destination)
                found[row.destination] = _sum(known, this) if known else this
        return list(found.values())


def _sum(one: Statement, other: Statement) -> Statement:
    return Statement(
        one.destination,
        min(one.first, other.first),
        max(one.last, other.last),
        one.count + other.count,
        (one.digest + other.digest) % _DIGESTS,
    )
