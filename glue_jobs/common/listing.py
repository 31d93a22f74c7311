"""List the archive's objects of a folder and some days: which to read, and which are faulty or gone."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from eventplane.archive_layout import COMPACTED, COMPACTIONS, PUBLISHED, Folder
from eventplane.errors import EventPlaneError
from eventplane.values import timestamp_of_ms
from eventplane.written import LISTED, Entry, list_of, read_entry
from glue_jobs.common import system
from glue_jobs.common.attestation import AttestationKey, attest, read_attested, refusal
from glue_jobs.common.hours import Days, Hour, day_of_folder, hour_of
from glue_jobs.common.objects import Objects, Stored

FORMAT: Final = 3
"""The version of the receipt, and of how hours are compacted; it stands in the name of a run."""

LINES: Final = ".json.gz"
"""What the names of raw objects end with."""

PARQUET: Final = ".parquet"
"""What the names of compacted files end with."""

_COPIES: Final = "copies"
"""A member of receipts of format 2, whose compaction marked copies."""

TOGETHER: Final = 16
"""Small objects that are read at the same time; each is a wait of some 20 ms on S3."""

_GZIP: Final = 31
"""For zlib: with the header and the checksum of gzip, and the largest window."""

_MAGIC: Final = b"\x1f\x8b"

_CHUNK: Final = 2**16
_LINE: Final = re.compile("[^\n]+")

ROW_SHARE: Final = 16
"""Of the most bytes that are read of an object one row has no more than such a part. Ours: parsed, a row of
nothing but brackets is 25 times as large."""

_HIDDEN: Final = (".", "_")
"""What the names begin with that Spark does not list."""

FaultKind = Literal["unreadable", "misplaced", "duplicate", "gone", "unattested"]

_LISTED_MS: Final = 60_000
"""The entries of the last minute are not counted through, milliseconds. Ours: a listing of thousands of keys
takes a second, in which a writer goes on."""


class UnreadableReceiptError(EventPlaneError):
    """The receipt `name` is damaged, or of a newer version of the compaction; `problem` says how it looks."""

    name: str
    problem: str
    message = (
        "{name} cannot be read ({problem}); restore its old version, or delete it if all raw objects of the "
        "hour are still there, and run the compaction again"
    )


@dataclass(frozen=True, slots=True)
class HourReceipt:
    """The receipt of an hour: the raw objects (`inputs`) and Parquet `files`, names with `Objects.digest`.

    `version` is the folder's at that time. `rows` are all, `line_texts` those kept as text. Without it the
    hour is compacted again, with the same result. A digest is '' where the receipt is of a compaction that
    did not keep them. `attested_at_ms` is when the compaction attested it, Unix milliseconds; None: it is not
    attested, and may be false.
    """

    version: int
    run: str
    rows: int
    line_texts: int
    inputs: Mapping[str, str]
    files: Mapping[str, str]
    attested_at_ms: int | None = None

    @property
    def is_attested(self) -> bool:
        """True if it counts."""
        return self.attested_at_ms is not None

    def covers(self, inputs: Sequence[Stored]) -> bool:
        """Return whether all of `inputs` are in it."""
        return {each.name for each in inputs} <= {*self.inputs}


def run_of(folder: Folder, inputs: Sequence[Stored]) -> str:
    """Return the name of the result: equal inputs and equal schema give an equal one."""
    told = [FORMAT, folder.version, *([each.name, each.mark] for each in inputs)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def read_receipt(objects: Objects, key: AttestationKey, folder: Folder, hour: Hour) -> HourReceipt | None:
    """Return the receipt of an hour; None if it was not compacted. Raises `UnreadableReceiptError`."""
    name = hour.receipt(folder.name)
    body = objects.read(name)
    if body is None:
        return None
    try:
        members, is_attested = read_attested(key, name, body)
        digests = {each: _digests(members[each]) for each in ("inputs", "files")}
        known = {each: value for each, value in members.items() if each != _COPIES}
        receipt = HourReceipt(**{**known, **digests})
    except (ValueError, LookupError, TypeError) as error:
        # Not as if there were none: the hour would be made anew of the sources that are left.
        raise UnreadableReceiptError(name, repr(error)) from error
    return receipt if is_attested else replace(receipt, attested_at_ms=None)


def _digests(names: Any) -> Mapping[str, str]:
    digests = names if isinstance(names, dict) else dict.fromkeys(names, "")
    if not all(isinstance(each, str) for pair in digests.items() for each in pair):
        raise TypeError("names and digests are texts")
    return digests


def write_receipt(
    objects: Objects, key: AttestationKey, folder: Folder, hour: Hour, receipt: HourReceipt
) -> None:
    """Put the receipt, attested, where the next run looks for it."""
    name = hour.receipt(folder.name)
    objects.write(name, attest(key, name, asdict(receipt)))


def publish(objects: Objects, folder: Folder, hour: Hour, files: Iterable[str]) -> None:
    """Make `files` (names) count, and nothing else of this hour.

    One small object names them and is replaced as a whole. Athena's tables point at these objects, so an
    hour's result appears at once or not at all, however many files it has.
    """
    lines = "".join(f"{objects.uri}/{name}\n" for name in files)
    objects.write(hour.published(folder.name), lines.encode())


def published(objects: Objects, folder: Folder, hour: Hour) -> list[str]:
    """Return the names of the files that count; none when the hour is not compacted."""
    lines = (objects.read(hour.published(folder.name)) or b"").decode("utf-8", "replace").split()
    # By the part below the root: a copy of the archive lies elsewhere than its lines say.
    return [f"{COMPACTED}/{line.rpartition(f'/{COMPACTED}/')[2]}" for line in lines]


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """An object of the archive that is not as it should be; `name` is its key.

    unreadable: its content is damaged, empty or gone; `rows` are those that could be read all the same.
    misplaced: it is no raw object in the folder of an hour. Lines in it are read.
    duplicate: an earlier object, named in `detail`, has the same bytes. Its rows are read once.
    gone: a writer lists it; or (`name` is a folder of the lists) entries of a list are gone. `rows` are those
    that files have which no attested receipt names.
    unattested: a receipt, or a list of files, that no job with the key has attested. What raw objects hold is
    read from them, and what only its files hold from these.
    """

    kind: FaultKind
    name: str
    hour: Hour | None
    folder: str
    detail: str
    rows: int | None


@dataclass(slots=True)
class HourPlan:
    """From which objects an hour is read; `present` are raw objects whose rows the files have as well.

    `receipt` is the one of the hour if it is attested.
    """

    raw: list[Stored]
    files: list[Stored]
    present: frozenset[str] = frozenset()
    receipt: HourReceipt | None = None

    def has_envelope(self, folder: Folder) -> bool:
        """Return whether the files are known to have all columns of today."""
        return self.receipt is not None and self.receipt.version == folder.version


class Gone(NamedTuple):
    """A thing that writers list, and the archive lacks: an object called `name`, or entries of a list in that
    folder.

    At most `rows` of the times `first_ms` to `last_ms` (Unix milliseconds) are missing, and none of entries
    whose objects are there. `objects` is 0 where the object is there, with other content.
    """

    name: str
    hour: Hour
    objects: int
    rows: int
    first_ms: int
    last_ms: int
    detail: str


class Listing:
    """The archive's objects of a folder and some days: which objects, and from which of them to read."""

    def __init__(
        self,
        objects: Objects,
        key: AttestationKey,
        folder: Folder,
        days: Days,
        damaged: Mapping[str, ObjectFault],
    ) -> None:
        self.folder = folder
        self.faults: list[ObjectFault] = []
        self.plans: dict[Hour, HourPlan] = {}
        self._objects = objects
        self._key = key
        self._known = damaged
        self._all: dict[str, list[Stored]] = {}
        self._stray: list[Stored] = []
        # Before the objects: each of them is there before its entry.
        self.entries = list(self._entries(days)) if folder.name in LISTED else []
        """What writers listed."""
        by_hour: defaultdict[Hour, list[Stored]] = defaultdict(list)
        for day_folder in self._days(folder.name, days):
            found = objects.beneath(f"{folder.name}/{day_folder}")
            self._all[f"{folder.name}/{day_folder}"] = found
            for each in found:
                hour = hour_of(each.name)
                if hour and each.name.rpartition("/")[0] == hour.raw(folder.name) and _is_listed(each.name):
                    by_hour[hour].append(each)
                else:
                    self._misplace(each)
        compacted = self._compacted(days) if folder.compaction else {}
        for hour in sorted({*by_hour, *compacted}):
            plan = self._plan(hour, by_hour[hour], compacted.get(hour))
            if plan.raw or plan.files or plan.receipt:
                self.plans[hour] = plan
        self._drop_duplicates()
        self._note_damage()
        self.gone = list(self._gone())
        # Of an hour without any object other folders show what was in it.
        self.faults += (
            ObjectFault("gone", each.name, each.hour, folder.name, each.detail, None)
            for each in self.gone
            if each.hour in self.plans
        )
        self._cite_writers()

    @property
    def objects(self) -> list[Stored]:
        """The objects that are read, faulty ones included, in the order of names."""
        found = [each for plan in self.plans.values() for each in (*plan.raw, *plan.files)]
        return sorted([*found, *self._stray], key=lambda each: each.name)

    def roots(self) -> list[str]:
        """Return the folders in which everything is to be read as lines, and the single objects besides."""
        wanted = {each.name for plan in self.plans.values() for each in plan.raw}
        wanted |= {each.name for each in self._stray}
        wanted -= {*self._known, *(each.name for each in self.faults if each.kind == "duplicate")}
        return [root for day, found in self._all.items() for root in _roots(day, found, wanted)]

    def damaged(self) -> list[str]:
        """Return the raw objects that are damaged and still there."""
        return [each.name for each in self.objects if each.name in self._known and each.name.endswith(LINES)]

    def _days(self, folder: str, days: Days) -> Iterator[str]:
        for each in self._objects.folders(folder):
            day = day_of_folder(each)
            if day is None:
                self._fault(
                    "misplaced", f"{folder}/{each}", "it is the folder of no day; nothing in it is read", 0
                )
            elif days.holds(day):
                yield each

    def _entries(self, days: Days) -> Iterator[Entry]:
        lists = list_of(self.folder.name)
        for day_folder in self._days(lists, days):
            for each in self._objects.beneath(f"{lists}/{day_folder}"):
                entry = read_entry(each.name)
                hour = hour_of(each.name)
                if entry and hour and entry.key.rpartition("/")[0] == hour.raw(self.folder.name):
                    yield entry
                else:
                    self._fault("misplaced", each.name, "it is no entry of a writer's list", 0)

    def _gone(self) -> Iterator[Gone]:
        """Find what is listed and not there; an object that was moved to another hour is."""
        receipts = [plan.receipt for plan in self.plans.values() if plan.receipt]
        there = {name: hour_of(name) for receipt in receipts for name in receipt.inputs}
        there |= {each.name: hour_of(each.name) for found in self._all.values() for each in found}
        names = {*map(_last, there)}
        # A receipt that is damaged or not attested, or a list without a receipt, excuses nothing: else who
        # writes it could hide what is gone.
        listed = {each.key: each for each in self.entries}
        for each in listed.values():
            hour = hour_of(each.key)
            if hour and _last(each.key) not in names:
                extent = each.rows, each.first_ms, each.last_ms
                yield Gone(each.key, hour, 1, *extent, f"it is gone, and {statement_of(each)}")
        listed_names = {*map(_last, listed)}
        unlisted = [hour for name, hour in there.items() if hour and _last(name) not in listed_names]
        for before, behind in _gaps(self.entries):
            hour = hour_of(behind.key)
            first = hour_of(before.key) if before else hour
            if not hour or not first:
                continue
            entry, rows = before.number + 1 if before else 1, behind.rows_before
            rows -= before.rows_before + before.rows if before else 0
            first_ms = min(before.first_ms if before else behind.began_ms, behind.first_ms)
            rows, missing = max(0, rows), behind.number - entry
            told = f"entries {entry} to {behind.number - 1} of the list of writer {behind.writer} are gone"
            told = f"{told}: {missing} objects with {_told(rows, first_ms, behind.last_ms)}"
            if sum(first <= each <= hour for each in unlisted) >= missing:
                told, missing, rows = f"{told}; as many that no list names are there", 0, 0
            place = hour.raw(list_of(self.folder.name))
            yield Gone(place, hour, missing, rows, first_ms, behind.last_ms, told)

    def _cite_writers(self) -> None:
        """Add to the faults of unreadable objects what their writers list."""
        listed = {each.key: each for each in self.entries}
        for at, fault in enumerate(self.faults):
            entry, hour = listed.get(fault.name), fault.hour
            if entry and hour and fault.kind == "unreadable":
                told = f"{fault.detail}; {statement_of(entry)}"
                rows = max(0, entry.rows - (fault.rows or 0))
                self.faults[at] = replace(fault, detail=told)
                self.gone.append(Gone(entry.key, hour, 0, rows, entry.first_ms, entry.last_ms, told))

    def _misplace(self, stored: Stored) -> None:
        if _is_listed(stored.name):
            self._fault(
                "misplaced", stored.name, "it is not in the folder of an hour; its lines are read", None
            )
            self._stray.append(stored)
        else:
            self._fault("misplaced", stored.name, f"its name is not that of a raw object, *{LINES}", 0)

    def _fault(self, kind: FaultKind, name: str, detail: str, rows: int | None) -> None:
        self.faults.append(ObjectFault(kind, name, hour_of(name), self.folder.name, detail, rows))

    def _compacted(self, days: Days) -> dict[Hour, tuple[list[str], HourReceipt | None, dict[str, Stored]]]:
        """Return by hour the published files, the receipt, and what lies in the compacted folder."""
        roots = [f"{root}/{self.folder.name}" for root in (PUBLISHED, COMPACTIONS)]
        names = set[Hour]()
        there: dict[str, Stored] = {}
        for day_folder in {each for root in roots for each in self._days(root, days)}:
            listed = [each for root in roots for each in self._objects.beneath(f"{root}/{day_folder}")]
            names |= {hour for each in listed if (hour := hour_of(each.name))}
            files = self._objects.beneath(f"{COMPACTED}/{self.folder.name}/{day_folder}")
            there |= {each.name: each for each in files}
        hours = sorted(names)
        with system.pool(TOGETHER) as together:
            lists = together.map(lambda hour: published(self._objects, self.folder, hour), hours)
            receipts = together.map(self._receipt, hours)
            return {
                hour: (files, receipt, there)
                for hour, files, receipt in zip(hours, lists, receipts, strict=True)
                if files or receipt
            }

    def _receipt(self, hour: Hour) -> HourReceipt | None:
        try:
            return read_receipt(self._objects, self._key, self.folder, hour)
        except UnreadableReceiptError as error:
            self._fault("unreadable", error.name, error.problem, None)
            return None

    def _plan(
        self,
        hour: Hour,
        raw: list[Stored],
        compacted: tuple[list[str], HourReceipt | None, dict[str, Stored]] | None,
    ) -> HourPlan:
        if compacted is None:
            return HourPlan(raw, [])
        names, receipt, there = compacted
        attested = receipt if receipt and receipt.is_attested else None
        if receipt and not attested:
            name, problem = hour.receipt(self.folder.name), refusal(self._key, "compaction")
            self._fault("unattested", name, problem, None)
        elif not {*names} <= {*(attested.files if attested else ())}:
            name, problem = hour.published(self.folder.name), "it names files that no attested receipt names"
            self._fault("unattested", name, f"{problem}; run the compaction again", None)
        if attested:
            names = [*attested.files]
        missing = [name for name in names if name not in there or name in self._known]
        for name in missing:
            if name in there:
                self.faults.append(self._known[name])
            else:
                self._fault("unreadable", name, "it is gone, and the hour's receipt or list names it", 0)
        inputs = frozenset(receipt.inputs) if receipt else frozenset()
        raw_names = frozenset(each.name for each in raw)
        files = [there[name] for name in names if name in there]
        if attested and not missing:
            return HourPlan([each for each in raw if each.name not in inputs], files, frozenset(), attested)
        if receipt and inputs <= raw_names:
            return HourPlan(raw, [], frozenset(), attested)
        # Without a whole result and its receipt: every raw object, and of the files what is in none of them.
        return HourPlan(raw, files, raw_names, attested)

    def _drop_duplicates(self) -> None:
        """Find objects of equal bytes; those that were compacted by their receipts."""
        by_size: defaultdict[int, list[Stored]] = defaultdict(list)
        names: defaultdict[str, list[str]] = defaultdict(list)
        for plan in self.plans.values():
            for name, digest in (plan.receipt.inputs if plan.receipt else {}).items():
                names[digest].append(name)
            for each in plan.raw:
                if plan.receipt and each.size:
                    names[self._objects.digest(each)].append(each.name)
                elif each.size:
                    by_size[each.size].append(each)
        for group in by_size.values():
            for each in group if len(group) > 1 else ():
                names[self._objects.digest(each)].append(each.name)
        names.pop("", None)
        for equal in names.values():
            first, *others = sorted({*equal})
            for name in others:
                self._fault("duplicate", name, f"it has the same bytes as {first}", 0)

    def _note_damage(self) -> None:
        noted = {each.name for each in self.faults}
        for each in self.objects:
            if each.name in noted:
                continue
            if each.name in self._known:
                self.faults.append(self._known[each.name])
            elif not each.size:
                self._fault("unreadable", each.name, "it is empty: 0 bytes, not even of gzip", 0)


def _gaps(entries: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry]]:
    """Return the entries before and behind a gap in the numbers of a list; None before one at its beginning.

    A list may begin on a day that was not read.
    """
    settled_ms = max((_written_ms(each) for each in entries), default=0) - _LISTED_MS
    first_day = min((hour.start.date() for each in entries if (hour := hour_of(each.key))), default=None)
    before: Entry | None = None
    for each in sorted(entries, key=lambda each: (each.writer, each.number)):
        if before and before.writer != each.writer:
            before = None
        began = datetime.fromtimestamp(each.began_ms / 1_000, UTC).date()
        is_within = before is not None or first_day is None or began >= first_day
        if each.number > (before.number if before else 0) + 1 and is_within and each.last_ms <= settled_ms:
            yield before, each
        before = each


def _written_ms(entry: Entry) -> int:
    """Return until when at most the object was written: a wrong time does not reach beyond its hour."""
    hour = hour_of(entry.key)
    return min(entry.last_ms, Hour.at(hour.number + 1).start_ms) if hour else 0


def statement_of(entry: Entry) -> str:
    """Return what the writer says of its object."""
    extent = _told(entry.rows, entry.first_ms, entry.last_ms)
    return f"its writer {entry.writer} listed it with {extent}, SHA-256 {entry.digest}"


def _told(rows: int, first_ms: int, last_ms: int) -> str:
    return f"{rows} rows of {timestamp_of_ms(first_ms)} to {timestamp_of_ms(last_ms)}"


def place_of(name: str) -> tuple[str, str]:
    """Return the folder and the last part of an object's name, which it keeps if it moves to another hour."""
    return name.partition("/")[0], _last(name)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _is_listed(name: str) -> bool:
    """Return whether Spark finds the object in a folder when it looks for lines."""
    last = _last(name)
    return last.endswith(LINES) and not last.startswith(_HIDDEN)


def _roots(day: str, found: Sequence[Stored], wanted: Collection[str]) -> Iterator[str]:
    """Name folders and objects in which all of `wanted` in the folder `day` are, and nothing else."""

    def is_whole(each: Iterable[Stored]) -> bool:
        return all(one.name in wanted for one in each if _is_listed(one.name) and one.size)

    if not any(each.name in wanted for each in found):
        return
    if is_whole(found):
        yield day
        return
    by_folder: defaultdict[str, list[Stored]] = defaultdict(list)
    for each in found:
        by_folder[each.name.rpartition("/")[0]].append(each)
    for folder, inside in by_folder.items():
        if is_whole(inside) and folder != day:
            if any(each.name in wanted for each in inside):
                yield folder
        else:
            yield from (each.name for each in inside if each.name in wanted and each.size)


def whole_lines(content: bytes, most: int = sys.maxsize - 1) -> tuple[list[str], str | None]:
    """Return the lines of gzip `content` that are certain, and what is wrong with it.

    Of an object that is cut short the lines before the cut are certain; of one whose checksum does not fit,
    none is: it is unknown which was altered. Raises `OverflowError` if there are more than `most` bytes, or
    in one line more than a `ROW_SHARE` of them.
    """
    text, at, problem, is_cut = bytearray(), 0, None, False
    while at < len(content) and not problem:
        reader, start, begun = zlib.decompressobj(wbits=_GZIP), at, len(text)
        try:
            # In chunks: each of many small members would copy all that comes behind it.
            while at < len(content) and not reader.eof:
                chunk = content[at : at + _CHUNK]
                text += reader.decompress(chunk, most + 1 - len(text))
                if len(text) > most:
                    raise OverflowError
                at += len(chunk) - len(reader.unused_data)
        except zlib.error:
            is_gzip = content.startswith(_MAGIC, start)
            problem = (
                "its checksum does not fit, or it cannot be decompressed" if is_gzip else "it is not gzip"
            )
            del text[begun:]
            break
        if not reader.eof:
            problem, is_cut = "it is cut short", True
            del text[text.rfind(b"\n") + 1 :]
    # One by one: of nothing but ends of lines a list would be sixty times as large.
    found_lines = (each[0] for each in _LINE.finditer(text.decode("utf-8", "replace")))
    lines = [line for line in found_lines if line.strip()]
    if any(len(line) > most // ROW_SHARE for line in lines):
        raise OverflowError
    # Where its end was altered, and not cut, the decoder runs on and makes lines of the checksum.
    return [line for line in lines if not is_cut or _is_json(line)], problem


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
