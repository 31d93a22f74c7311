"""The lists of the archive's writers: what each wrote, numbered, so that a missing object is seen.

An entry is an object without content whose key says everything, so that a reader lists a thousand at once.
It is written after the object that it names: an object without an entry counts all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventplane.ledger import HANDOVERS, LEDGER, TAP

WRITTEN: Final = "written"
"""The folder of the lists: `written/<key of the object>.<entry>`."""

LISTED: Final = frozenset({TAP, LEDGER, HANDOVERS})
"""The folders whose objects are listed: those that the audit judges."""

# Each record of these folders begins with two times. 14 digits end in the year 5138; 15 go beyond 9999,
# where Python's dates end.
_TIMES: Final = re.compile(r'\{"\w+_at_ms":(\d{1,14}),"\w+_at_ms":(\d{1,14})[,}]')

_ENTRY: Final = re.compile(
    rf"{WRITTEN}/(.+)\.(\d{{1,14}}-[0-9a-f]{{16}})\.(\d{{1,9}})\.(\d{{1,15}})\.(\d{{1,9}})"
    r"\.(\d{1,14})\.(\d{1,14})\.([0-9a-f]{64})(?:\.([0-9a-f]{32}-\d{1,12}))?"
)

_MARK: Final = re.compile(r"[0-9a-f]{32}-\d{1,12}")
"""An ETag as S3 gives it to what one request wrote, and a size in bytes."""


def list_of(folder: str) -> str:
    """Return the folder of the lists of what was written to `folder`."""
    return f"{WRITTEN}/{folder}"


@dataclass(slots=True)
class Extent:
    """The number of an object's rows, their first and last times, Unix milliseconds (0: none is known)."""

    rows: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, line: str) -> None:
        """Add a row."""
        self.rows += 1
        if times := _TIMES.match(line):
            first_ms, last_ms = sorted(map(int, times.groups()))
            self.first_ms = min(self.first_ms or first_ms, first_ms)
            self.last_ms = max(self.last_ms, last_ms)


class Entry(NamedTuple):
    """The entry of one object, called `key`, in the list of a `writer`.

    `number` counts from 1, `rows_before` are those of the entries before it. The `rows` of the object are of
    the times `first_ms` to `last_ms` (Unix milliseconds), `digest` is the SHA-256 of its bytes. `mark` is
    what a bucket's listing shows of it, `<ETag>-<bytes>`, to compare it without reading it ('': unknown).
    """

    key: str
    writer: str
    number: int
    rows_before: int
    rows: int
    first_ms: int
    last_ms: int
    digest: str
    mark: str = ""

    @property
    def name(self) -> str:
        """The key of the entry itself."""
        return f"{WRITTEN}/{'.'.join(map(str, self))}".removesuffix(".")

    @property
    def began_ms(self) -> int:
        """When the writer began its list, Unix milliseconds."""
        return int(self.writer.partition("-")[0])


def read_entry(name: str) -> Entry | None:
    """Return the entry whose key is `name`; None where that is none."""
    found = _ENTRY.fullmatch(name)
    if found is None:
        return None
    key, writer, *numbers, digest, mark = found.groups()
    entry = Entry._make((key, writer, *map(int, numbers), digest, mark or ""))
    return entry if entry.first_ms <= entry.last_ms else None


class WriterList:
    """The list of one writer, which began at `began_ms` (Unix ms) and drew `token`, 16 hexadecimal digits."""

    def __init__(self, began_ms: int, token: str) -> None:
        self._writer = f"{began_ms}-{token}"
        self._number = self._rows = 0

    def next(self, key: str, extent: Extent, digest: str, mark: str = "") -> Entry:
        """Return the entry of the object `key`; it counts once it is `kept`.

        A `mark` of another form is left out.
        """
        times = extent.rows, extent.first_ms, extent.last_ms
        known = mark if _MARK.fullmatch(mark) else ""
        return Entry(key, self._writer, self._number + 1, self._rows, *times, digest, known)

    def kept(self, entry: Entry) -> None:
        """Go on behind `entry`, which is durable."""
        self._number, self._rows = entry.number, entry.rows_before + entry.rows
