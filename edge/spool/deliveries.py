"""Events and the queues in which they are pending, within the caller's transaction.

A commit's events for the same destinations are one blob: rows of a table share pages, and SQLite writes a
page anew when a row of it goes; a blob's own pages are written once and freed unwritten. Every queue has its
counters in a row of its own, so nothing about a backlog is ever counted again and a start takes the same time
however much is pending.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from edge.spool import BEFORE_EVERYTHING, Manifest, StoredEvent
from edge.spool.database import DamagedRowError, TableTotals, checksum
from eventplane.device_reports import KEY_BYTES, event_digest

BATCH_BYTES = 32 * 1024
"""Text in a batch, more only for a single event. One pending event keeps its whole batch on the disk."""

COMPRESSED_BYTES = 4 * 1024
"""Least text of a batch that is compressed. Ours: alarms, and what comes one by one, stay readable without
what is in front of them; what comes in bulk takes a fifth of the writes."""

_COUNT = struct.Struct("<I")
_COMPRESSED = 1 << 31  # beside the count: the texts are one zlib stream
_LEVEL = 1
_EVENT = struct.Struct("<III")  # the batch's last sequence minus this one, bytes of text, CRC-32 of them
_WAITING = struct.Struct("<Iq")  # the batch's last sequence minus this one, expiry or _NEVER
_NEVER = (1 << 63) - 1
_TEXT_SEED = 0x5EED  # the CRC-32 of nothing would be 0
_DIGESTS = 1 << (8 * KEY_BYTES)
_DIGEST_BYTES = KEY_BYTES + 1  # a digest of KEY_BYTES is an earlier version's, by another rule

_NEXT = """
SELECT last, before, waiting, checksum FROM delivery WHERE queue = ? AND last >= ? ORDER BY last LIMIT 1
"""
_DELETE_DELIVERED = """
DELETE FROM batch WHERE last = ? AND NOT EXISTS (
    SELECT 1 FROM queue CROSS JOIN delivery ON delivery.queue = queue.number
    WHERE queue.rank = batch.rank AND delivery.last = batch.last
) RETURNING checksum
"""


@dataclass(slots=True)
class PendingQueue:
    """One destination at one rank; see the table `queue`. The last four count since the last closing.

    `digest` is None where an earlier version counted by another rule since then.
    """

    number: int
    destination: str
    rank: int
    pending: int = 0
    newest: int = BEFORE_EVERYTHING
    head: int = BEFORE_EVERYTHING
    tail: int = BEFORE_EVERYTHING
    first: int = 0
    last: int = 0
    count: int = 0
    digest: int | None = 0

    @classmethod
    def read(cls, row: Sequence[Any]) -> PendingQueue:
        """Return the queue of a row of the table. Raises `DamagedRowError`."""
        *fields, code = row
        if checksum("queue", *fields) != code:
            raise DamagedRowError(f"queue {row[0]!r}")
        *fields, digest = fields
        queue = cls(*fields)
        is_comparable = len(digest) == _DIGEST_BYTES or not queue.count
        queue.digest = int.from_bytes(digest, "big") if is_comparable else None
        return queue

    def stored(self, sequence: int, digest: bytes) -> None:
        """Count one more delivery, of an event with this `event_digest`."""
        self.pending += 1
        self.newest = max(self.newest, sequence)
        self.first = min(self.first, sequence) if self.count else sequence
        self.last = max(self.last, sequence) if self.count else sequence
        self.count += 1
        if self.digest is not None:
            self.digest = (self.digest + int.from_bytes(digest, "big")) % _DIGESTS

    def row(self) -> tuple[int | str | bytes, ...]:
        """Return the row of the table."""
        digest = bytes(KEY_BYTES) if self.digest is None else self.digest.to_bytes(_DIGEST_BYTES, "big")
        values = (*_COLUMNS(self), digest)
        return (*values, checksum("queue", *values))


_COLUMNS = attrgetter(*(each.name for each in fields(PendingQueue) if each.name != "digest"))


class PendingQueues:
    """All queues. Changes are made to drafts, which `keep` makes valid once they are committed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._queues: dict[tuple[str, int], PendingQueue] = {}
        self._codes: dict[tuple[str, int], int] = {}
        for row in db.execute("SELECT * FROM queue ORDER BY number"):
            queue = PendingQueue.read(row)
            self._queues[queue.destination, queue.rank] = queue
            # As it is stored: what an earlier version wrote is written otherwise today.
            self._codes[queue.destination, queue.rank] = int(row[-1])
        self._draft_codes: dict[tuple[str, int], int] = {}
        self._drafts: dict[tuple[str, int], PendingQueue] = {}
        self._pending = sum(each.pending for each in self._queues.values())

    def __iter__(self) -> Iterator[PendingQueue]:
        return iter(self._queues.values())

    def get(self, destination: str, rank: int) -> PendingQueue | None:
        """Return the committed queue, None when nothing was ever stored for it."""
        return self._queues.get((destination, rank))

    def pending(self) -> int:
        """Return how many deliveries are pending, in all queues, with the drafts."""
        return self._pending + sum(
            draft.pending - (self._queues[key].pending if key in self._queues else 0)
            for key, draft in self._drafts.items()
        )

    def draft(self, destination: str, rank: int) -> PendingQueue:
        """Return a copy to change, of a queue that is made when there is none."""
        key = (destination, rank)
        if key not in self._drafts:
            known = self._queues.get(key)
            new = len({*self._queues, *self._drafts}) + 1
            self._drafts[key] = replace(known) if known else PendingQueue(new, destination, rank)
        return self._drafts[key]

    def close_manifests(self) -> None:
        """Start counting anew what is stored."""
        for each in list(self._queues.values()):
            if each.count:
                self.draft(each.destination, each.rank)
        for draft in self._drafts.values():
            draft.first = draft.last = draft.count = draft.digest = 0

    def write(self, totals: TableTotals) -> None:
        """Put the drafts into the transaction."""
        rows = [each.row() for each in self._drafts.values()]
        self._db.executemany(f"INSERT OR REPLACE INTO queue VALUES ({'?, ' * 11}?)", rows)  # noqa: S608
        for key, row in zip(self._drafts, rows, strict=True):
            if key in self._codes:
                totals.remove("queue", self._codes[key])
            self._draft_codes[key] = int(row[-1])
            totals.add("queue", int(row[-1]))

    def keep(self) -> None:
        """Take the drafts for valid: the transaction is committed."""
        self._pending = self.pending()
        self._queues.update(self._drafts)
        self._codes.update(self._draft_codes)
        self.forget()

    def forget(self) -> None:
        """Forget the drafts: the transaction was rolled back."""
        self._drafts.clear()
        self._draft_codes.clear()

    def manifests(self) -> list[Manifest]:
        """Return what was stored since the last closing, by destination."""
        found: dict[str, Manifest] = {}
        for each in self._queues.values():
            if each.count:
                this = Manifest(each.destination, each.first, each.last, each.count, each.digest)
                known = found.get(each.destination)
                found[each.destination] = _sum(known, this) if known else this
        return list(found.values())


def _sum(one: Manifest, other: Manifest) -> Manifest:
    return Manifest(
        one.destination,
        min(one.first, other.first),
        max(one.last, other.last),
        one.count + other.count,
        None if one.digest is None or other.digest is None else (one.digest + other.digest) % _DIGESTS,
    )


class EventBatch(NamedTuple):
    """A row of the table `batch`."""

    last: int
    rank: int
    stored_ms: int
    checksum: int
    destinations: str
    texts: Any  # bytes, unless it is damaged

    @classmethod
    def of(cls, events: Sequence[StoredEvent], texts: Sequence[bytes], stored_ms: int) -> EventBatch:
        """Pack the `texts` of `events`, which have the same rank and destinations, behind a table of them."""
        last, rank, destinations = events[-1].sequence, events[0].rank, "\n".join(events[0].destinations)
        body, form = b"".join(texts), 0
        if len(body) >= COMPRESSED_BYTES:
            body, form = zlib.compress(body, _LEVEL), _COMPRESSED
        table = _COUNT.pack(len(texts) | form) + b"".join(
            _EVENT.pack(last - each.sequence, len(text), zlib.crc32(text, _TEXT_SEED))
            for each, text in zip(events, texts, strict=True)
        )
        code = checksum("batch", last, rank, stored_ms, destinations, table)
        return cls(last, rank, stored_ms, code, destinations, table + body)

    def read_texts(self) -> Iterator[tuple[int, str | None]]:
        """Read each event's sequence and text, None for a damaged one. Raises `DamagedRowError`."""
        last, rank, stored_ms, code, destinations, blob = self
        damaged = DamagedRowError(f"batch {last!r}")
        if not isinstance(blob, bytes) or len(blob) < _COUNT.size:
            raise damaged
        (count,) = _COUNT.unpack_from(blob)
        start = _COUNT.size + (count & ~_COMPRESSED) * _EVENT.size
        table, body = blob[:start], blob[start:]
        if len(table) != start or code != checksum("batch", last, rank, stored_ms, destinations, table):
            raise damaged
        rows = list(_EVENT.iter_unpack(table[_COUNT.size :]))
        if count & _COMPRESSED:
            body = _decompressed(body, sum(size for _, size, _ in rows))
        start = 0
        for before, size, text_code in rows:
            text = body[start : start + size]
            start += size
            intact = size and len(text) == size and zlib.crc32(text, _TEXT_SEED) == text_code
            yield last - before, text.decode("utf-8") if intact else None


def _decompressed(stream: bytes, most: int) -> bytes:
    """Return up to `most` bytes of the texts in `stream`, of a damaged one those before the damage."""
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj().decompress(stream, most)
    inflater, found = zlib.decompressobj(), bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(len(stream)):
            found += inflater.decompress(stream[at : at + 1], most)
    return bytes(found)


class PendingBatch(NamedTuple):
    """A row of the table `delivery`; `waiting` has each pending sequence and its expiry."""

    last: int
    before: int
    waiting: list[tuple[int, int | None]]

    @classmethod
    def read(cls, db: sqlite3.Connection, queue: int, after: int) -> PendingBatch | None:
        """Read the first one behind sequence `after`. Raises `DamagedRowError`."""
        row = db.execute(_NEXT, (queue, after + 1)).fetchone()
        if row is None:
            return None
        *values, code = row
        if checksum("delivery", queue, *values) != code:
            raise DamagedRowError(f"the list of what is pending of batch {row[0]!r}")
        last, before, blob = values
        waiting = [
            (last - less, None if expires_ms == _NEVER else expires_ms)
            for less, expires_ms in _WAITING.iter_unpack(blob)
        ]
        return cls(last, before, waiting)

    def write(self, db: sqlite3.Connection, queue: int) -> None:
        """Put it in the place of the row with the same `last`."""
        blob = b"".join(
            _WAITING.pack(self.last - sequence, _NEVER if expires_ms is None else expires_ms)
            for sequence, expires_ms in self.waiting
        )
        values = (queue, self.last, self.before, blob)
        db.execute(
            "INSERT OR REPLACE INTO delivery VALUES (?, ?, ?, ?, ?)", (*values, checksum("delivery", *values))
        )


class Deliveries:
    """The pending deliveries of every queue."""

    def __init__(self, db: sqlite3.Connection, queues: PendingQueues) -> None:
        self._db = db
        self._queues = queues
        # The batch read last: a reader that takes a few events at a time reads it many times.
        self._read_last: int | None = None
        self._read: tuple[int, dict[int, str]] = (0, {})

    def add(self, stored: Sequence[StoredEvent], stored_ms: int, totals: TableTotals) -> None:
        """Store events."""
        for events in _grouped(stored):
            texts = [each.json.encode("utf-8") for each in events]
            batch = EventBatch.of(events, texts, stored_ms)
            digests = [event_digest(text) for text in texts]
            self._db.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?)", batch)
            totals.add("batch", batch.checksum)
            for destination in events[0].destinations:
                queue = self._queues.draft(destination, batch.rank)
                waiting = [(each.sequence, each.destinations[destination]) for each in events]
                PendingBatch(batch.last, queue.tail, waiting).write(self._db, queue.number)
                queue.tail = batch.last
                for each, digest in zip(events, digests, strict=True):
                    queue.stored(each.sequence, digest)

    def end(self, destination: str, rank: int, sequences: Iterable[int], totals: TableTotals) -> set[int]:
        """Remove deliveries from a queue. Returns those that were in it; the others have ended already."""
        asked, done = sorted(set(sequences)), 0
        ended: set[int] = set()
        if self._queues.get(destination, rank) is None:
            return ended
        queue = self._queues.draft(destination, rank)
        while done < len(asked) and (batch := PendingBatch.read(self._db, queue.number, asked[done] - 1)):
            until = bisect_right(asked, batch.last, done)
            here = {sequence for sequence, _ in batch.waiting}.intersection(asked[done:until])
            if here:
                left = [each for each in batch.waiting if each[0] not in here]
                self._rewrite(queue, batch._replace(waiting=left), totals)
            ended |= here
            done = until
        queue.pending -= len(ended)
        if queue.pending < 0 or (queue.pending == 0) != (queue.head == queue.tail):
            raise DamagedRowError(f"the queue of {destination} at rank {rank}")
        return ended

    def read(self, queue: PendingQueue, after: int) -> Iterator[tuple[int, str, int | None, int]]:
        """Read sequence, text, expiry and time of storing of what is pending behind `after`, in order."""
        # One query a batch: an open cursor would keep the write-ahead log from starting anew.
        while batch := PendingBatch.read(self._db, queue.number, after):
            if batch.before > after and batch.before != queue.head:
                raise DamagedRowError(f"the list of what is pending before batch {batch.last}")
            stored_ms, texts = self._read_batch(batch.last)
            # All of it first: what is skipped must be there as well.
            if not texts.keys() >= {sequence for sequence, _ in batch.waiting}:
                raise DamagedRowError(f"batch {batch.last}")
            for sequence, expires_ms in batch.waiting:
                if sequence > after:
                    yield sequence, texts[sequence], expires_ms, stored_ms
            after = batch.last
        if queue.head != queue.tail and queue.tail > after:
            raise DamagedRowError(f"the list of what is pending behind {after}")

    def first_pending(self, most: int = 1, destination: str = "") -> list[int]:
        """Return the lowest `most` sequences that are pending, in order, or those for one `destination`."""
        queues = (each for each in self._queues if each.pending and destination in ("", each.destination))
        oldest = (islice(self.read(each, BEFORE_EVERYTHING), most) for each in queues)
        return sorted(sequence for found in oldest for sequence, *_ in found)[:most]

    def _read_batch(self, last: int) -> tuple[int, dict[int, str]]:
        if self._read_last != last:
            row = self._db.execute("SELECT * FROM batch WHERE last = ?", (last,)).fetchone()
            if row is None:
                raise DamagedRowError(f"batch {last}")
            batch, texts = EventBatch(*row), {}
            for sequence, text in batch.read_texts():
                if text is None:
                    raise DamagedRowError(f"the text of event {sequence}")
                texts[sequence] = text
            self._read, self._read_last = (batch.stored_ms, texts), last
        return self._read

    def _rewrite(self, queue: PendingQueue, batch: PendingBatch, totals: TableTotals) -> None:
        if batch.waiting:
            batch.write(self._db, queue.number)
            return
        self._db.execute("DELETE FROM delivery WHERE queue = ? AND last = ?", (queue.number, batch.last))
        if batch.before == queue.head:
            queue.head = batch.last
        elif batch.last == queue.tail:
            queue.tail = batch.before
        elif follower := PendingBatch.read(self._db, queue.number, batch.last):
            follower._replace(before=batch.before).write(self._db, queue.number)
        for (code,) in self._db.execute(_DELETE_DELIVERED, (batch.last,)).fetchall():
            totals.remove("batch", code)


def _grouped(events: Sequence[StoredEvent]) -> list[list[StoredEvent]]:
    """Return batches of the same rank and destinations. For any one destination they are in order."""
    batches: list[list[StoredEvent]] = []
    opened: dict[tuple[int, str], tuple[list[StoredEvent], int]] = {}
    for each in events:
        queues = [(each.rank, destination) for destination in each.destinations]
        batch, size = opened.get(queues[0], ([], 0))
        together = bool(batch) and batch[0].destinations.keys() == each.destinations.keys()
        # A batch of this one's in between would break the order of the open one's later events.
        if (
            not together
            or size + len(each.json) > BATCH_BYTES
            or any(opened[queue][0] is not batch for queue in queues)
        ):
            batch, size = [], 0
            batches.append(batch)
        batch.append(each)
        opened.update((queue, (batch, size + len(each.json))) for queue in queues)
    return batches
