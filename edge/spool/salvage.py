"""Reads what can be read of a damaged spool into a new one, batch by batch, around the holes.

What the cloud desires of the device comes last: the new epoch makes the cloud send it again anyhow.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edge.spool.batch import DamagedTextError, read_texts, unpack_waiting
from edge.spool.deliveries import Deliveries
from edge.spool.file import transaction
from edge.spool.holdings import Holdings, read_holdings
from edge.spool.lanes import Lanes
from edge.spool.records import BEFORE_EVERYTHING, Arrival
from eventplane.event_keys import KEY_BYTES

SHIFT = 1 << 40
"""What salvaged sequences are lowered by: more than any sequence of the 12 digits that events carry."""

_BATCH = "SELECT last, rank, stored_ms, destinations, texts FROM batch WHERE last > ? ORDER BY last LIMIT 1"
_STEPS = 62
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The second when SQLite's own message quotes damaged bytes, which Python cannot decode."""
_DAMAGE = (sqlite3.Error, DamagedTextError, UnicodeDecodeError, TypeError, ValueError, AttributeError)
"""A damaged row can hold anything."""


@dataclass(slots=True)
class Salvage:
    """What came out: `events` in the new spool, `lost` ones that were seen, why it `stopped` early."""

    events: int = 0
    lost: int = 0
    epoch: str = ""
    life_ms: int = 0
    stopped: str = ""


def salvage(damaged: Path, new: sqlite3.Connection, more: Callable[[], bool]) -> Salvage:
    """Copy events until there are none, `more` says stop or `new` has no room."""
    result = Salvage()
    try:
        old = sqlite3.connect(f"{damaged.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return result
    with contextlib.closing(old):
        _read_device(old, result)
        try:
            _copy(old, new, result, more)
            _copy_holdings(old, new, more)
        except sqlite3.Error as error:
            result.stopped = str(error)
    return result


def _read_device(old: sqlite3.Connection, result: Salvage) -> None:
    with contextlib.suppress(*_DAMAGE):
        epoch, life_ms = old.execute("SELECT epoch, life_ms FROM device").fetchone()
        if isinstance(epoch, str) and isinstance(life_ms, int):
            result.epoch, result.life_ms = epoch, life_ms


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, result: Salvage, more: Callable[[], bool]
) -> None:
    lanes, deliveries = Lanes(new), Deliveries(new)
    numbers = _lane_numbers(old)
    for row in _rows(old):
        if not more():
            result.stopped = "out of time"
            return
        try:
            arrivals = list(_arrivals(old, numbers, row, result))
        except _DAMAGE:
            result.lost += 1
            continue
        stored_ms = row[2]
        result.life_ms = max(result.life_ms, stored_ms)
        with transaction(new):
            deliveries.add(arrivals, stored_ms, lanes.draft)
            # What the new epoch states begins with its own events.
            lanes.keep()
            lanes.close_statements()
            lanes.write()
        lanes.keep()
        result.events += len(arrivals)


def _copy_holdings(old: sqlite3.Connection, new: sqlite3.Connection, more: Callable[[], bool]) -> None:
    holdings = Holdings(new)
    # As far as it can be read; a file of an older format has none.
    with transaction(new), contextlib.suppress(*_DAMAGE):
        for each in read_holdings(old):
            if not more():
                return
            holdings.put([each._replace(sequence=each.sequence - SHIFT)])


def _rows(old: sqlite3.Connection) -> Iterator[tuple[int, int, int, str, bytes]]:
    after: int | None = BEFORE_EVERYTHING
    while after is not None:
        try:
            row = old.execute(_BATCH, (after,)).fetchone()
        except _UNREADABLE:
            after = _behind_hole(old, after)
            continue
        if row is None:
            return
        yield row
        after = row[0]


def _behind_hole(old: sqlite3.Connection, after: int) -> int | None:
    """The nearest number behind `after` that can be read on from, None when there is none."""
    readable = [step for step in range(_STEPS) if _can_read(old, after + (1 << step))]
    if not readable:
        return None
    low, high = (1 << readable[0]) // 2, 1 << readable[0]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_read(old, after + middle) else (middle, high)
    return after + high


def _can_read(old: sqlite3.Connection, after: int) -> bool:
    try:
        return old.execute(_BATCH, (after,)).fetchone() is not None
    except _UNREADABLE:
        return False


def _lane_numbers(old: sqlite3.Connection) -> dict[tuple[str, int], int]:
    with contextlib.suppress(*_DAMAGE):
        rows = old.execute("SELECT destination, rank, number FROM lane").fetchall()
        return {(destination, rank): number for destination, rank, number in rows}
    return {}


def _arrivals(
    old: sqlite3.Connection,
    numbers: dict[tuple[str, int], int],
    row: tuple[int, int, int, str, bytes],
    result: Salvage,
) -> Iterator[Arrival]:
    last, rank, stored_ms, names, texts = row
    if not all(isinstance(each, int) for each in (rank, stored_ms)) or not names:
        raise DamagedTextError(last)
    events = dict(read_texts(texts, last))
    waiting = _waiting(old, numbers, last, rank, names.split("\n"))
    for sequence, text in events.items():
        destinations = {name: who[sequence] for name, who in waiting.items() if sequence in who}
        if waiting and not destinations:
            continue  # delivered, and kept for the sake of others in its batch
        if text is None:
            result.lost += 1
            continue
        yield Arrival(
            sequence - SHIFT, rank, text, destinations or dict.fromkeys(names.split("\n")), bytes(KEY_BYTES)
        )


def _waiting(
    old: sqlite3.Connection, numbers: dict[tuple[str, int], int], last: int, rank: int, names: list[str]
) -> dict[str, dict[int, int | None]]:
    """By destination what waits; empty when that cannot be read: better all of it twice than never."""
    found: dict[str, dict[int, int | None]] = {}
    try:
        for name in names:
            blob = old.execute(
                "SELECT waiting FROM delivery WHERE lane = ? AND last = ?", (numbers[name, rank], last)
            ).fetchone()
            if blob is not None:
                found[name] = dict(unpack_waiting(blob[0], last))
    except (*_DAMAGE, KeyError):
        return {}
    return found
