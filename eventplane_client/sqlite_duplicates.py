"""The filter on a device's disk: two SQLite files, safe at every point of a crash or a power cut."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from eventplane.ordering import Stream
from eventplane_client.memory_duplicates import MOST_POSITIONS, WINDOW
from eventplane_client.notices import Listener, log_notice
from eventplane_client.ports import Verdict
from eventplane_client.sqlite_file import lock, open_copies, state_errors, transaction

T = TypeVar("T")

_COPIES = ("main", "copy")

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
_PRIMARY = 0xFF


class SqliteFilter:
    """Remembers the last `window` events in the file at `path` and in a copy beside it.

    Its size on the disk is bounded: about 100 bytes an event and copy, and 256 KiB of log. One commit for
    each step, in both files: two syncs. A file belongs to one reader. Raises `StateError` when it cannot be
    used.
    """

    is_lasting = True

    def __init__(self, path: Path, *, window: int = WINDOW, on_notice: Listener = log_notice) -> None:
        self._path = path
        self._window = window
        self._on_notice = on_notice
        self._in_hand: set[bytes] = set()
        self._is_healing = False
        with state_errors(path):
            self._lock: int | None = lock(path)
            try:
                self._db = open_copies(path, on_notice)
                self._session = self._begin_session()
            except BaseException:
                os.close(self._lock)
                raise

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        verdicts = self._mending(lambda: [self._verdict(key, done) for key in keys])
        taken = [key for key, verdict in zip(keys, verdicts, strict=True) if verdict is Verdict.NEW or force]
        if taken or done:
            self._mending(lambda: self._write(taken, done))
            self._in_hand.difference_update(done)
            self._in_hand.update(taken)
        return verdicts

    def release(self, keys: Sequence[bytes]) -> None:
        self._mending(lambda: self._forget(keys))
        self._in_hand.difference_update(keys)

    def renew(self, keys: Sequence[bytes]) -> None:
        pass  # the file's lock says that its reader lives

    def tries(self, key: bytes) -> int:
        query = "SELECT tries FROM main.seen WHERE digest = ?"
        row = self._mending(lambda: self._db.execute(query, (key,)).fetchone())
        return int(row[0]) if row else 0

    def epoch(self, source: str, epoch: str) -> str | None:
        query = "SELECT epoch FROM main.epoch WHERE source = ?"
        row = self._mending(lambda: self._db.execute(query, (source,)).fetchone())
        before = str(row[0]) if row else None
        if before != epoch:
            self._mending(lambda: self._remember(source, epoch))
        return before if before != epoch else None

    def position(self, stream: Stream) -> int | None:
        query = "SELECT position FROM main.position WHERE stream = ?"
        row = self._mending(lambda: self._db.execute(query, (stream.text,)).fetchone())
        return int(row[0]) if row else None

    def advance(self, stream: Stream, position: int) -> None:
        self._mending(lambda: self._move(stream.text, position))

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _begin_session(self) -> int:
        with self._commit() as schemas:
            for schema in schemas:
                self._db.execute(f"UPDATE {schema}.state SET session = session + 1")  # noqa: S608
        (session,) = self._db.execute("SELECT session FROM main.state").fetchone()
        return int(session)

    def _verdict(self, key: bytes, done: Sequence[bytes]) -> Verdict:
        row = self._db.execute("SELECT session, done FROM main.seen WHERE digest = ?", (key,)).fetchone()
        if key in done or (row and row[1]):
            return Verdict.DONE
        if row is None:
            return Verdict.NEW
        if row[0] != self._session:
            return Verdict.DOUBT
        # A claim that raised may stand in one copy all the same; nobody got the event.
        return Verdict.MINE if key in self._in_hand else Verdict.NEW

    def _write(self, taken: Sequence[bytes], done: Sequence[bytes]) -> None:
        rows = [(key, self._session, 1) for key in done] + [(key, self._session, 0) for key in taken]
        with self._commit() as schemas:
            for schema in schemas:
                self._db.executemany(
                    f"INSERT INTO {schema}.seen (digest, session, tries, done) VALUES (?, ?, 1, ?) "  # noqa: S608
                    "ON CONFLICT (digest) DO UPDATE "
                    "SET session = excluded.session, tries = tries + 1, done = excluded.done",
                    rows,
                )
                self._db.execute(
                    f"DELETE FROM {schema}.seen WHERE number <= "  # noqa: S608
                    f"(SELECT MAX(number) FROM {schema}.seen) - ?",
                    (self._window,),
                )

    def _forget(self, keys: Sequence[bytes]) -> None:
        with self._commit() as schemas:
            for schema in schemas:
                self._db.executemany(
                    f"DELETE FROM {schema}.seen WHERE digest = ? AND done = 0",  # noqa: S608
                    [(key,) for key in keys],
                )

    def _remember(self, source: str, epoch: str) -> None:
        with self._commit() as schemas:
            for schema in schemas:
                self._db.execute(f"REPLACE INTO {schema}.epoch VALUES (?, ?)", (source, epoch))  # noqa: S608

    def _move(self, stream: str, position: int) -> None:
        with self._commit() as schemas:
            for schema in schemas:
                self._db.execute(
                    f"REPLACE INTO {schema}.position (stream, position) VALUES (?, MAX(?, IFNULL("  # noqa: S608
                    f"(SELECT position FROM {schema}.position WHERE stream = ?), 0)))",
                    (stream, position, stream),
                )
                self._db.execute(
                    f"DELETE FROM {schema}.position WHERE number <= "  # noqa: S608
                    f"(SELECT MAX(number) FROM {schema}.position) - ?",
                    (MOST_POSITIONS,),
                )

    @contextlib.contextmanager
    def _commit(self) -> Iterator[tuple[str, ...]]:
        """Whatever is written within is in both copies, or in neither but for a power cut between the two."""
        with transaction(self._db):
            yield _COPIES
            for schema in _COPIES:
                self._db.execute(f"UPDATE {schema}.state SET commits = commits + 1")  # noqa: S608

    def _mending(self, action: Callable[[], T]) -> T:
        """Do it; if the file turns out to be damaged, heal it from the other copy and do it again."""
        with state_errors(self._path):
            try:
                return action()
            except sqlite3.Error as error:
                # Python's own errors, as of a connection that is closed, have no code.
                code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
                if code not in _DAMAGED and not self._is_healing:
                    raise
                self._is_healing = True  # until it succeeds: on a full disk it may take several tries
                self._db.close()
                self._db = open_copies(self._path, self._on_notice)
                self._is_healing = False
                return action()
