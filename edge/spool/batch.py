"""How a commit's events are packed: those that go the same way lie in one blob.

Rows of a table share pages, and SQLite writes a page anew when a row of it goes; a blob's own pages are
written once and freed unwritten. Each event has a checksum, because SQLite has none for what is in a page.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from edge.spool.records import Arrival

BATCH_BYTES = 32 * 1024
"""Text in a batch, more only for a single event. One event that waits keeps its whole batch on the disk."""

_COUNT = struct.Struct("<I")
_EVENT = struct.Struct("<III")  # the batch's last sequence minus this one, bytes of text, CRC-32 of them
_WAITING = struct.Struct("<Iq")  # the batch's last sequence minus this one, expiry or _NEVER

_NEVER = (1 << 63) - 1


class DamagedTextError(ValueError):
    """The checksum of `sequence` is wrong, or the batch's own structure (None)."""

    def __init__(self, sequence: int | None) -> None:
        super().__init__(f"the text of {'a batch' if sequence is None else f'event {sequence}'} is damaged")


def grouped(arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    """Batches of the same rank and destinations. For any one destination they follow one another in order."""
    batches: list[list[Arrival]] = []
    opened: dict[tuple[int, str], tuple[list[Arrival], int]] = {}
    for each in arrivals:
        ways = [(each.rank, destination) for destination in each.destinations]
        batch, size = opened.get(ways[0], ([], 0))
        together = bool(batch) and batch[0].destinations.keys() == each.destinations.keys()
        # A batch of this one's in between would break the order of the open one's later events.
        if (
            not together
            or size + len(each.json) > BATCH_BYTES
            or any(opened[way][0] is not batch for way in ways)
        ):
            batch, size = [], 0
            batches.append(batch)
        batch.append(each)
        opened.update((way, (batch, size + len(each.json))) for way in ways)
    return batches


def pack_texts(batch: Sequence[Arrival]) -> bytes:
    """The events' texts behind a table of where they are."""
    last = batch[-1].sequence
    texts = [each.json.encode("utf-8") for each in batch]
    table = b"".join(
        _EVENT.pack(last - each.sequence, len(text), zlib.crc32(text))
        for each, text in zip(batch, texts, strict=True)
    )
    return b"".join((_COUNT.pack(len(batch)), table, *texts))


def unpack_texts(blob: bytes, last: int) -> dict[int, str]:
    """The texts by sequence. Raises `DamagedTextError`."""
    found: dict[int, str] = {}
    for sequence, text in read_texts(blob, last):
        if text is None:
            raise DamagedTextError(sequence)
        found[sequence] = text
    return found


def read_texts(blob: bytes, last: int) -> Iterator[tuple[int, str | None]]:
    """Each event of a batch, with None for a text that is damaged. Raises `DamagedTextError`."""
    try:
        (count,) = _COUNT.unpack_from(blob)
        start = _COUNT.size + count * _EVENT.size
        if start > len(blob):
            raise DamagedTextError(None)
        for before, size, checksum in _EVENT.iter_unpack(blob[_COUNT.size : start]):
            text = blob[start : start + size]
            start += size
            intact = len(text) == size and zlib.crc32(text) == checksum
            yield last - before, text.decode("utf-8") if intact else None
    except (struct.error, TypeError) as error:
        raise DamagedTextError(None) from error


def pack_waiting(waiting: Sequence[tuple[int, int | None]], last: int) -> bytes:
    """Which sequences wait for a destination, and when each expires."""
    return b"".join(
        _WAITING.pack(last - sequence, _NEVER if expires_ms is None else expires_ms)
        for sequence, expires_ms in waiting
    )


def unpack_waiting(blob: bytes, last: int) -> list[tuple[int, int | None]]:
    """What `pack_waiting` packed. Raises `DamagedTextError`."""
    try:
        return [
            (last - before, None if expires_ms == _NEVER else expires_ms)
            for before, expires_ms in _WAITING.iter_unpack(blob)
        ]
    except (struct.error, TypeError) as error:
        raise DamagedTextError(None) from error
