"""Raw lines and compacted files as records, read in Python: what `common.archive` reads with Spark.

For archives of up to some 200,000 events. All records are held in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventplane.archive_layout import Column, ColumnType, Folder
from eventplane.errors import EventPlaneError
from glue_jobs.common import system
from glue_jobs.common.archive import ArchivePart, file_fault, has_unattested_files, lines_fault
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days, hour_of
from glue_jobs.common.listing import PARQUET, ROW_SHARE, TOGETHER, Listing, ObjectFault, whole_lines
from glue_jobs.common.objects import Objects
from glue_jobs.common.parquet import UnreadableFileError, open_session, read_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_BYTES: Final = 32 * 2**20
"""How large an archive is at most, as it is stored. Ours: more than 200,000 events, 1.2 GiB of memory."""

MAX_READ_BYTES: Final = 2**30
"""How large it is at most as it is read: its characters, and `ROW_BYTES` for each row; one object a quarter
of that, and one row of it a `ROW_SHARE`. Few bytes of gzip or Parquet may be many of these. Ours: such an
archive has less."""

ROW_BYTES: Final = 1_024
_MOST: Final = MAX_READ_BYTES // 4
_ROW: Final = f"{_MOST // ROW_SHARE >> 20} MiB in one row"

# NaN is no JSON; `int` refuses it with a ValueError.
_decode: Final = json.JSONDecoder(parse_constant=int).raw_decode
# Objects as pairs of name and value, so that a name that comes twice is seen.
_decode_pairs: Final = json.JSONDecoder(parse_constant=int, object_pairs_hook=tuple).raw_decode
to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes a value as Spark's `to_json` does."""

_BLANKS: Final = " \t\r\n"
_INT64: Final = range(-(2**63), 2**63)


class LargeArchiveError(EventPlaneError):
    """The archive at `uri` is larger than what is read without Spark."""

    uri: str
    most = f"{MAX_BYTES >> 20} MiB of objects, {MAX_READ_BYTES >> 20} MiB of text and rows ({_ROW})"
    message = "{uri}: Python audits {most} at most; audit it with --ENGINE spark (Java 17; a bucket on Glue)"


class JsonRow(NamedTuple):
    """A line as `Archive.read` gives it: `values` are the folder's columns, without the event's attributes.

    `line` is the text of a line that is no such record; its `values` are those that could be read.
    """

    values: tuple[Any, ...]
    date: str
    file: str
    line: str | None
    unknown_members: bool


class PlainArchive:
    """Reads the archive in `objects` without Spark. A damaged object is a fault, as in `Archive`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._damaged: dict[str, ObjectFault] = {}
        self._records: dict[str, list[JsonRow]] = {}
        self._bytes = self._read_bytes = 0

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what `folder` holds of the days, for `read`. Raises `LargeArchiveError`."""
        while True:
            listing = Listing(self._objects, key, folder, days, self._damaged)
            new = [each for each in listing.objects if each.name not in self._records]
            self._bytes += sum(each.size for each in new)
            self._check()
            before = len(self._damaged)
            with system.pool(TOGETHER) as together:
                contents = together.map(self._objects.read, (each.name for each in new))
                for each, content in zip(new, contents, strict=True):
                    if content is not None:
                        self._records[each.name] = [*self._of(folder, each.name, content)]
            # Around damage others have to be read; a compaction or an erasure that ran meanwhile left others.
            if len(self._damaged) == before and all(each.name in self._records for each in new):
                return listing

    def read(self, listing: Listing, **_: Collection[str]) -> ArchivePart:
        """Return what the archive holds of a folder and some days; the rows are `JsonRow`."""
        copies = {each.name for each in listing.faults if each.kind == "duplicate"} - self._damaged.keys()
        present = {each.name: plan.present for plan in listing.plans.values() for each in plan.files}
        rows, held, is_held = list[JsonRow](), set[tuple[Any, ...]](), has_unattested_files(listing)
        for name in (each.name for each in listing.objects if each.name not in copies):
            found = self._records[name]
            if name in present:
                found = [each for each in found if each.file not in present[name]]
                held |= _identities(listing.folder, found) if is_held else set()
            rows += found
        return ArchivePart.of(rows, listing, Counter(file for file, *_ in held))

    def _of(self, folder: Folder, name: str, content: bytes) -> Iterator[JsonRow]:
        """Yield the records of an object; of a damaged one those that are certain."""
        columns = {each.name: each.type for each in folder.columns}
        of_compaction = Column("archive_file"), Column("line_text")
        try:
            if not name.endswith(PARQUET):
                lines, problem = whole_lines(content, _MOST)
                if problem:
                    self._damaged[name] = lines_fault(name, problem, len(lines))
                self._read_bytes += sum(ROW_BYTES + len(line) for line in lines)
                self._check()
                for line in lines:
                    yield read_record(line, columns, _date(folder, name), name)
            elif content:
                for row in read_rows(self._session, content, (*folder.columns, *of_compaction), _MOST):
                    self._read_bytes += ROW_BYTES + sum(len(each) for each in row if each.__class__ is str)
                    self._check()
                    yield _compacted_record(row, columns, folder)
        except UnreadableFileError:
            self._damaged[name] = file_fault(name, content)
        except OverflowError as error:
            raise LargeArchiveError(self._objects.uri) from error

    @cached_property
    def _session(self) -> DuckDBPyConnection:
        return open_session()

    def _check(self) -> None:
        if self._bytes > MAX_BYTES or self._read_bytes > MAX_READ_BYTES:
            raise LargeArchiveError(self._objects.uri)


def _date(folder: Folder, file: str) -> str:
    """Return the day in whose folder the raw object `file` lies."""
    return file.removeprefix(f"{folder.name}/date=").partition("/")[0]


def _identities(folder: Folder, records: Sequence[JsonRow]) -> set[tuple[Any, ...]]:
    """Return the raw object and the identity of each record of a compacted file."""
    names = [each.name for each in folder.columns]
    places = [names.index(each) for each in folder.compaction.identity] if folder.compaction else []
    return {(each.file, *(each.values[place] for place in places)) for each in records}


def _compacted_record(row: Sequence[Any], columns: Mapping[str, ColumnType], folder: Folder) -> JsonRow:
    """Return a row of a compacted file as a record.

    A line that the columns of an older file did not hold is read again: the columns may be more by now.
    Raises `UnreadableFileError` unless it names a raw object of `folder`.
    """
    *values, file, line = row
    hour = hour_of(file or "")
    if hour is None or not file.startswith(f"{hour.raw(folder.name)}/"):
        raise UnreadableFileError
    if line is None:
        return JsonRow(tuple(values), _date(folder, file), file, None, unknown_members=False)
    read = read_record(line, columns, _date(folder, file), file)
    both = zip(values, read.values, strict=True)
    held = tuple(again if value is None else value for value, again in both)
    is_record = read.line is None and read.values[0] is not None
    return JsonRow(held, read.date, file, None if is_record else line, unknown_members=is_record)


def read_record(line: str, columns: Mapping[str, ColumnType], date: str, file: str) -> JsonRow:
    """Return a line as a record with these columns."""
    pairs = _object(line, _decode_pairs)
    if not isinstance(pairs, tuple):
        return JsonRow((None,) * len(columns), date, file, line, unknown_members=False)
    members = dict(pairs)
    values, fits = [*map(members.get, columns)], True
    for at, (name, kind) in enumerate(columns.items()):
        value = values[at]
        if value is None or (value.__class__ is str and kind is ColumnType.TEXT and value.isascii()):
            continue
        if kind is ColumnType.TEXT:
            values[at] = text_of(members_of(line)[name] if isinstance(value, tuple | list) else value)
        elif value.__class__ is not int or value not in _INT64:
            values[at], fits = None, False
    has_others = len(members) != len(pairs) or not members.keys() <= columns.keys()
    # Every record begins with a time; what has members of its own and not this one is another record.
    is_record = fits and not (has_others and values[0] is None)
    return JsonRow(tuple(values), date, file, None if is_record else line, is_record and has_others)


def members_of(text: str | None) -> Mapping[str, Any]:
    """Return the members of the JSON object `text`; none where it cannot be read."""
    found = _object(text or "", _decode)
    return found if isinstance(found, dict) else {}


def _object(text: str, decode: Callable[[str], tuple[Any, int]]) -> Any:
    try:
        # What comes behind the object is left out, as Spark does.
        return decode(text.lstrip(_BLANKS))[0]
    except (ValueError, RecursionError):
        return None


def text_of(value: Any) -> str | None:
    """Return the canonical text of a JSON value, as `eventplane.attributes.attribute_text` has it."""
    if value.__class__ is str:
        # Half a surrogate pair is no text.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return None if value is None else to_json(value)
