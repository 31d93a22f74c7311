"""The durable store in front of everything that leaves the device: SQLite, one writer.

A commit takes many received events and many finished deliveries at once and is on the disk when it returns
(WAL, `synchronous=FULL`); nothing is acknowledged before. Each destination has its own pending deliveries,
ordered by priority rank and then sequence. An event goes away once no destination waits for it.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from edge.errors import SpoolError
from edge.spool_file import BACKLOG, DELETE_DELIVERED, EPOCH_BYTES, FORMAT, READ, SCHEMA, only_writer

READ_CHARACTERS = 512 * 1024
"""A read stops once it holds this much text, so that memory stays bounded whatever the events' sizes."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event to keep until each of `destinations` has it; `rank` 0 goes first."""

    sequence: int
    rank: int
    json: str
    destinations: tuple[str, ...]


class Delivery(NamedTuple):
    """One event's way to one destination."""

    destination: str
    rank: int
    sequence: int


class Waiting(NamedTuple):
    """A pending delivery with the event's text."""

    delivery: Delivery
    json: str


class Spool:
    """The store at `path`, created when it is not there. Opening takes the same time whatever is in it.

    Raises `SpoolError` from every method when the disk or the file fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._closing = contextlib.ExitStack()
        self._numbers: dict[str, int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        with self._named_errors("cannot be opened"), contextlib.ExitStack() as undo:
            path.parent.mkdir(parents=True, exist_ok=True)
            undo.enter_context(only_writer(path))
            self._db = undo.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None)))
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._create()
            (self.epoch,) = self._db.execute("SELECT epoch FROM device").fetchone()
            used = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
            self.next_sequence = (used[0] if used else 0) + 1
            self._numbers = dict(self._db.execute("SELECT name, number FROM destination"))
            self._closing = undo.pop_all()

    def commit(self, arrivals: Sequence[Arrival], done: Iterable[Delivery]) -> None:
        """Store `arrivals` (numbered on from `next_sequence`) and forget `done`, all or nothing, for good."""
        with self._named_errors("cannot commit"), self._transaction():
            self._insert(arrivals)
            self._delete(list(done))
        for arrival in arrivals:
            self.next_sequence = arrival.sequence + 1
            for destination in arrival.destinations:
                self._newest[destination, arrival.rank] = arrival.sequence

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[Waiting]:
        """Up to `limit` pending deliveries of one destination and rank, in order, behind sequence `after`.

        At least one when there is one; fewer than `limit` also when they hold `READ_CHARACTERS`.
        """
        found: list[Waiting] = []
        characters = 0
        with self._named_errors("cannot be read"):
            rows = self._db.execute(READ, (self._numbers.get(destination), rank, after, limit))
            for sequence, json in rows:
                found.append(Waiting(Delivery(destination, rank, sequence), json))
                characters += len(json)
                if characters >= READ_CHARACTERS:
                    break
        return found

    def newest(self, destination: str, rank: int) -> int:
        """The highest sequence ever pending for a destination and rank (0: none), without a disk access."""
        if (destination, rank) not in self._newest:
            with self._named_errors("cannot be read"):
                (sequence,) = self._db.execute(
                    "SELECT MAX(sequence) FROM delivery WHERE destination = ? AND rank = ?",
                    (self._numbers.get(destination), rank),
                ).fetchone()
            self._newest[destination, rank] = sequence or 0
        return self._newest[destination, rank]

    def destinations(self) -> list[str]:
        """Every destination that ever had a delivery."""
        return list(self._numbers)

    def backlog(self) -> dict[str, int]:
        """Pending deliveries by destination. Counts them one by one: for people, not for the loop."""
        with self._named_errors("cannot be read"):
            return dict(self._db.execute(BACKLOG))

    def close(self) -> None:
        """Close the file; another process may open it then."""
        with self._named_errors("cannot be closed"):
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found == 0:
            with self._transaction():
                for statement in SCHEMA:
                    self._db.execute(statement)
                self._db.execute("INSERT INTO device VALUES (?)", (secrets.token_hex(EPOCH_BYTES),))
        elif found != FORMAT:
            raise SpoolError(
                self.path, f"its format is {found}, not {FORMAT}", "run the program that wrote it"
            )

    def _insert(self, arrivals: Sequence[Arrival]) -> None:
        self._db.executemany(
            "INSERT INTO event VALUES (?, ?, ?)", ((each.sequence, each.rank, each.json) for each in arrivals)
        )
        self._db.executemany(
            "INSERT INTO delivery VALUES (?, ?, ?)",
            (
                (self._number(destination), each.rank, each.sequence)
                for each in arrivals
                for destination in each.destinations
            ),
        )

    def _delete(self, done: Sequence[Delivery]) -> None:
        self._db.executemany(
            "DELETE FROM delivery WHERE destination = ? AND rank = ? AND sequence = ?",
            ((self._numbers.get(each.destination), each.rank, each.sequence) for each in done),
        )
        self._db.executemany(DELETE_DELIVERED, ((each.sequence,) for each in done))

    def _number(self, destination: str) -> int:
        if destination not in self._numbers:
            cursor = self._db.execute("INSERT INTO destination (name) VALUES (?)", (destination,))
            self._numbers[destination] = cursor.lastrowid or 0
        return self._numbers[destination]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        known = dict(self._numbers)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._numbers = known
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _named_errors(self, problem: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            remedy = "see that the disk has room and the directory is writable"
            raise SpoolError(self.path, f"{problem}: {error}", remedy) from error


def read_backlog(path: Path) -> dict[str, int]:
    """Pending deliveries by destination of the spool at `path`, also while a forwarder works on it.

    Raises `SpoolError` when there is no spool.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            return dict(db.execute(BACKLOG))
    except sqlite3.Error as error:
        raise SpoolError(
            path, f"cannot be read: {error}", "name the spool of a forwarder that has run"
        ) from error
