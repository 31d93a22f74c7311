"""Raw lines of the archive as records, read in Python: what `common.archive` reads with Spark.

For archives of some hundred events, for which Spark takes seconds. Compacted hours are Parquet, which only
Spark reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from eventplane.archive_layout import ColumnType, Folder
from eventplane.errors import EventPlaneError
from glue_jobs.common.archive import Part, lines_fault
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days
from glue_jobs.common.listing import PARQUET, Listing, ObjectFault, whole_lines
from glue_jobs.common.objects import Objects

# NaN is no JSON; `int` refuses it with a ValueError.
_decode: Final = json.JSONDecoder(parse_constant=int).raw_decode
# Objects as pairs of name and value, so that a name that comes twice is seen.
_decode_pairs: Final = json.JSONDecoder(parse_constant=int, object_pairs_hook=tuple).raw_decode
to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes a value as Spark's `to_json` does."""

_BLANKS: Final = " \t\r\n"
_INT64: Final = range(-(2**63), 2**63)


class CompactedHourError(EventPlaneError):
    """The rows of an hour lie in the compacted file `name`, and are read without Spark."""

    name: str
    message = "{name}: only Spark reads compacted hours; run python -m glue_jobs.delivery_audit"


class Record(NamedTuple):
    """A line as `Archive.read` gives it: `values` are the folder's columns, without the event's attributes.

    `line` is the text of a line that is no such record; its `values` are those that could be read.
    """

    values: tuple[Any, ...]
    date: str
    file: str
    line: str | None
    unknown_members: bool


class LineArchive:
    """Reads the archive in `objects` without Spark. A damaged object is a fault, as in `Archive`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._damaged: dict[str, ObjectFault] = {}
        self._lines: dict[str, list[str]] = {}

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what `folder` holds of the days, for `read`. Raises `CompactedHourError`."""
        listing = Listing(self._objects, key, folder, days, self._damaged)
        for each in listing.objects:
            if each.name.endswith(PARQUET):
                raise CompactedHourError(each.name)
            content = self._objects.read(each.name) or b""
            lines, problem = whole_lines(content)
            self._lines[each.name] = lines
            if content and problem:
                self._damaged[each.name] = lines_fault(each.name, problem, len(lines))
        known = any(each.name in self._damaged for each in listing.objects)
        return Listing(self._objects, key, folder, days, self._damaged) if known else listing

    def read(self, listing: Listing, **_: Collection[str]) -> Part:
        """Return what the archive holds of a folder and some days; the rows are `Record`."""
        copies = {each.name for each in listing.faults if each.kind == "duplicate"} - self._damaged.keys()
        names = (each.name for each in listing.objects if each.name not in copies)
        return Part.of([record for name in names for record in self._records(name, listing.folder)], listing)

    def _records(self, name: str, folder: Folder) -> Iterator[Record]:
        date = name.removeprefix(f"{folder.name}/date=").partition("/")[0]
        columns = {each.name: each.type for each in folder.columns}
        for line in self._lines[name]:
            yield read_record(line, columns, date, name)


def read_record(line: str, columns: Mapping[str, ColumnType], date: str, file: str) -> Record:
    """Return a line as a record with these columns."""
    pairs = _object(line, _decode_pairs)
    if not isinstance(pairs, tuple):
        return Record((None,) * len(columns), date, file, line, unknown_members=False)
    members = dict(pairs)
    values, fits = [members.get(name) for name in columns], True
    for at, kind in enumerate(columns.values()):
        value = values[at]
        if value is None or (value.__class__ is str and kind is ColumnType.TEXT and value.isascii()):
            continue
        if kind is ColumnType.TEXT:
            values[at] = text_of(_plain(value))
        elif value.__class__ is not int or value not in _INT64:
            values[at], fits = None, False
    has_others = len(members) != len(pairs) or not members.keys() <= columns.keys()
    # Every record begins with a time; what has members of its own and not this one is another record.
    is_record = fits and not (has_others and values[0] is None)
    return Record(tuple(values), date, file, None if is_record else line, is_record and has_others)


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


def _plain(value: Any) -> Any:
    """Return a value of `_decode_pairs` as `_decode` has it."""
    if isinstance(value, tuple):
        return {name: _plain(each) for name, each in value}
    return [*map(_plain, value)] if isinstance(value, list) else value
