"""The archive's objects, written as a stream: gzipped JSON lines by folder and hour of writing."""

from __future__ import annotations

import gzip
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from eventplane.contract import Contract
from eventplane.ledger import CONTRACTS, HANDOVERS
from eventplane.written import LISTED, Extent, WriterList

_HOUR_MS = 3_600_000
_TOGETHER = 200
"""Lines that are compressed in one go."""


class _Object:
    """One open object: its key, and what it holds."""

    def __init__(self, root: Path, key: str) -> None:
        self.path = root / key
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.key = key
        self.extent = Extent()
        self._raw = self.path.open("wb")
        # As the functions write it: level 1, no time stamp, so that equal rows are equal bytes.
        self._gzip = gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", compresslevel=1, mtime=0)
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)
        self.extent.add(line)
        if len(self._lines) >= _TOGETHER:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._gzip.close()
        self._raw.close()

    def _flush(self) -> None:
        self._gzip.write("".join(f"{line}\n" for line in self._lines).encode())
        self._lines.clear()


class MadeObjects:
    """The archive at `root`; an object is full with `rows` rows, a small one with a twentieth.

    Small are those of the hours `small`, counted from 1970, and the handovers, which a function writes by
    tens. Counts what it wrote by folder.
    """

    def __init__(self, root: Path, rows: int, small: frozenset[int] = frozenset()) -> None:
        self._root = root
        self._rows = rows
        self._small = small
        self._open: dict[tuple[str, int], _Object] = {}
        self._lists: dict[str, WriterList] = {}
        self._objects = 0
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for place in [*self._open]:
            self._close(place)

    def add(self, folder: str, written_at_ms: int, line: str) -> str:
        """Write one row; returns the key of its object. Times in Unix milliseconds."""
        place = folder, written_at_ms // _HOUR_MS
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = self._new(*place)
        found.write(line)
        self.counts[folder] = self.counts.get(folder, 0) + 1
        is_small = place[1] in self._small or folder == HANDOVERS
        if found.extent.rows >= (self._rows // 20 if is_small else self._rows):
            self._close(place)
        return found.key

    def close_before(self, milliseconds: int) -> None:
        """No more is to come soon of hours that ended before this Unix time; what comes gets a new object."""
        for place in [each for each in self._open if (each[1] + 1) * _HOUR_MS <= milliseconds]:
            self._close(place)

    def file_contract(self, contract: Contract) -> None:
        """Keep the contract under its version."""
        path = self._root / CONTRACTS / f"{contract.version}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contract.canonical)

    def _close(self, place: tuple[str, int]) -> None:
        """End an object, and list it as the function would that wrote all of its folder."""
        done, (folder, hour) = self._open.pop(place), place
        done.close()
        if folder in LISTED:
            mine = self._lists.setdefault(folder, WriterList(hour * _HOUR_MS, f"{len(self._lists):016x}"))
            entry = mine.next(done.key, done.extent, hashlib.sha256(done.path.read_bytes()).hexdigest())
            place_of = self._root / entry.name
            place_of.parent.mkdir(parents=True, exist_ok=True)
            place_of.touch()
            mine.kept(entry)

    def _new(self, folder: str, hour: int) -> _Object:
        self._objects += 1
        moment = datetime.fromtimestamp(hour * 3_600, UTC)
        name = f"{self._objects:032x}"
        return _Object(self._root, f"{folder}/date={moment:%Y-%m-%d}/hour={moment:%H}/{name}.json.gz")
