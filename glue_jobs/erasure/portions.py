"""The archive's rows about persons, in portions, and the objects without the person.

The new objects of a portion are written to a staging folder, and then replace the old ones one by one. An
interrupted erasure continues from its `Erased`.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import AUDIT, COMPACTED, ERASURES, FOLDERS, Folder, Form
from eventplane.errors import EventPlaneError
from glue_jobs.common.archive import Archive, struct_of, with_envelope
from glue_jobs.common.attestation import AttestationKey, attest, read_attested, refusal
from glue_jobs.common.hours import Days, hours_of
from glue_jobs.common.listing import LINES, PARQUET
from glue_jobs.common.objects import Objects, OldVersions, Stored
from glue_jobs.compaction.files import CODEC
from glue_jobs.erasure.person import Eraser, Person, RowChange, Shared

_AT_ONCE = 20
"""Raw objects that are in memory together. A writer's batch makes one of some MB of lines."""

_STAGING = f"{ERASURES}/staging"
_PLAN = "plan.json"

FORMAT = 3
"""The version of plan and receipt."""

_PERSONAL = tuple(each for each in FOLDERS if each.is_personal and each.form is Form.LINES)
"""Folders whose raw rows can be about persons."""

OPEN = "its hour is still written to; run the erasure again when it has ended"

_PARTITION = re.compile(rf"(?:{COMPACTED}/)?(.+/date=[^/]+(?:/hour=[^/]+)?)/")


@dataclass(frozen=True, slots=True)
class Portion:
    """Objects of one `table`; `folder` is what they were written as, None for an audit's table."""

    table: str
    stored: tuple[Stored, ...]
    folder: Folder | None
    is_raw: bool

    def only(self, names: Collection[str]) -> Portion:
        """Return it with the objects of these names."""
        return replace(self, stored=tuple(each for each in self.stored if each.name in names))

    def rows(self, spark: SparkSession, objects: Objects) -> DataFrame:
        """Return its rows with `file`, the object's name; raw ones as `value`, their line."""
        names = [each.name for each in self.stored]
        if self.is_raw and self.folder is not None:
            return Archive(spark, objects).lines(self.folder, names)
        rows = spark.read.option("mergeSchema", "true").parquet(*(f"{objects.uri}/{each}" for each in names))
        within = sf.substring_index("_metadata.file_path", f"/{self.table}/", -1)
        return rows.select("*", sf.concat(sf.lit(f"{self.table}/"), within).alias("file"))

    def survey(self, spark: SparkSession, objects: Objects, eraser: Eraser) -> Survey:
        """Return what `eraser` finds in its objects."""
        if not self.stored:
            return Survey()
        found = self.rows(spark, objects).rdd.mapPartitions(lambda rows: [_survey(rows, eraser)])
        return found.fold(Survey(), Survey.and_)

    def rewrite(self, spark: SparkSession, objects: Objects, eraser: Eraser, progress: Erased) -> None:
        """Replace its objects by those without the person, and note it in `progress`."""
        at_once = _AT_ONCE if self.is_raw else 1
        made: dict[str, str] = {}
        for start in range(0, len(self.stored), at_once):
            some = replace(self, stored=self.stored[start : start + at_once])
            rows = some.rows(spark, objects)
            made |= (_make_lines if self.is_raw else _make_parquet)(objects, some, rows, eraser)
        progress.note(objects, self.stored, made=made)
        for name, aside in made.items():
            objects.move(aside, name)
        progress.settle(objects)


@dataclass(slots=True)
class Survey:
    """Rows by object: of the person, which go; `redacted` ones; and those that may hold a name all the same.

    `may_remain` counts by object and reason. `shared` is what concerns rows of others.
    """

    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    may_remain: Counter[tuple[str, str]] = field(default_factory=Counter)
    shared: Shared = field(default_factory=Shared)

    def and_(self, other: Survey) -> Survey:
        """Return both together."""
        counts = self.rows + other.rows, self.redacted + other.redacted, self.may_remain + other.may_remain
        return Survey(*counts, self.shared.and_(other.shared))


def _survey(rows: Iterable[Row], eraser: Eraser) -> Survey:
    found, claims, letters = Survey(), set[str](), dict[str, str]()
    for row in rows:
        change = _changed(row, eraser)[1]
        found.rows[row["file"]] += change.own
        found.redacted[row["file"]] += bool(change.members)
        found.may_remain.update((row["file"], reason) for reason in change.may_remain)
        claims |= change.shared.claims
        letters |= change.shared.letters
    found.shared = Shared(frozenset(claims), letters)
    return found


def _changed(row: Row, eraser: Eraser) -> tuple[Any, RowChange]:
    """Return a row as it is to be, and what becomes of it: a line, or a dictionary."""
    members = row.asDict()
    if "value" in members:
        return eraser.line(members["value"])
    change = eraser.row(members)
    return {**members, **change.members}, change


def _left(rows: Iterable[Row], eraser: Eraser) -> Iterator[tuple[str, Any]]:
    for row in rows:
        made, change = _changed(row, eraser)
        if not change.own:
            yield row["file"], made


def _aside(name: str, eraser: Eraser) -> str:
    return f"{_STAGING}/{eraser.person.pseudonym}/{name}"


def _make_lines(objects: Objects, portion: Portion, rows: DataFrame, eraser: Eraser) -> dict[str, str]:
    """Make the portion's objects anew, without the person, and return where each is."""
    lines: dict[str, list[str]] = {each.name: [] for each in portion.stored}
    for name, line in rows.rdd.mapPartitions(lambda each: _left(each, eraser)).collect():
        lines[name].append(line)
    for name, texts in lines.items():
        # As the writers do it: no time stamp, so that equal lines make equal bytes.
        body = "".join(f"{text}\n" for text in texts).encode()
        objects.write(_aside(name, eraser), gzip.compress(body, compresslevel=1, mtime=0))
    return {name: _aside(name, eraser) for name in lines}


def _make_parquet(objects: Objects, portion: Portion, rows: DataFrame, eraser: Eraser) -> dict[str, str]:
    """Make the portion's one object anew, without the person, and return where it is."""
    columns = rows.drop("file").schema
    if (folder := portion.folder) and folder.compaction:
        columns = struct_of(folder.compacted_columns)
    names = columns.names
    left = rows.rdd.mapPartitions(lambda each: _left(each, eraser))
    made = left.map(lambda each: tuple(each[1].get(name) for name in names))
    one = rows.sparkSession.createDataFrame(made, columns, verifySchema=False).repartition(1)
    if folder and folder.compaction:
        # What is made of the event is made anew.
        made_of_event = {*folder.compaction.attributes, *(each.name for each in folder.compaction.derived)}
        one = with_envelope(one.drop(*made_of_event), folder).select(*names)
        one = one.sortWithinPartitions(*folder.compaction.order)
    name = portion.stored[0].name
    place = _aside(name, eraser)
    one.write.mode("overwrite").option("compression", CODEC).parquet(f"{objects.uri}/{place}")
    (written,) = (each.name for each in objects.beneath(place) if each.name.endswith(PARQUET))
    return {name: written}


def portions(objects: Objects, now: datetime) -> Iterator[Portion]:
    """Return everything that can hold a person's rows: a day of a table at a time, closed hours only.

    Raw rows come before the compacted ones of them: a compaction that runs meanwhile either sees its sources
    change and gives up, or is done before its result is looked at.
    """
    for folder in _PERSONAL:
        yield from _hourly(objects, folder.name, folder, now, is_raw=True)
        if folder.compaction:
            yield from _hourly(objects, f"{COMPACTED}/{folder.name}", folder, now, is_raw=False)
    for table in objects.folders(AUDIT):
        place = f"{AUDIT}/{table}"
        if stored := _named(objects.beneath(place), PARQUET):
            yield Portion(place, stored, None, is_raw=False)


def open_hours(objects: Objects, now: datetime) -> Survey:
    """Return the objects of hours that are still written to, which are left alone: all may hold something."""
    found = Survey()
    for folder in _PERSONAL:
        for hour in hours_of(objects, folder.name, Days()):
            if not hour.is_closed(now):
                found.may_remain[hour.raw(folder.name), OPEN] = 0
    return found


def documents(objects: Objects) -> list[Stored]:
    """Return the audit's documents, and its lists of what to send again."""
    return [each for each in objects.beneath(AUDIT) if each.name.endswith((".json", ".html", LINES))]


def document_text(objects: Objects, name: str) -> str:
    """Return the text of a document; empty when it is gone. Raises OSError for one that is damaged."""
    body = objects.read(name) or b""
    return (gzip.decompress(body) if name.endswith(LINES) else body).decode("utf-8")


def clear_staging(objects: Objects) -> None:
    """Delete what the rewriting left, old versions included."""
    objects.delete(each.name for each in objects.beneath(_STAGING))
    objects.delete_old_versions(f"{_STAGING}/")


def _hourly(
    objects: Objects, table: str, folder: Folder, now: datetime, *, is_raw: bool
) -> Iterator[Portion]:
    by_day: dict[str, list[Stored]] = {}
    for hour in hours_of(objects, table, Days()):
        if hour.is_closed(now):
            stored = objects.beneath(f"{table}/{hour.partition}")
            by_day.setdefault(f"{hour.start:%Y-%m-%d}", []).extend(
                _named(stored, LINES if is_raw else PARQUET)
            )
    for day in by_day.values():
        if day:
            yield Portion(table, tuple(day), folder, is_raw)


def _named(stored: Sequence[Stored], suffix: str) -> tuple[Stored, ...]:
    return tuple(each for each in stored if each.name.endswith(suffix))


class UnattestedPlanError(EventPlaneError):
    """The plan `name` of an interrupted erasure does not count, so what was changed is unknown."""

    name: str
    problem: str
    message = "{name}: {problem}"


class Unnamed(NamedTuple):
    """A person whose erasure was interrupted, known by the name of the plan only."""

    pseudonym: str


@dataclass(slots=True)
class Erased:
    """The progress of an erasure: what it found so far, and the `changes`.

    `rows` that were the person's and `redacted` ones by object, those that `may_remain` by object and reason,
    the audit's `documents` that named the person, and what rows of others have in common with theirs.
    It is written down before anything is removed: only by it a later run knows whose old versions to delete.
    `changes` has of each object the digest before, and the one after: None where it was deleted, '' while it
    is being replaced. By these an audit knows that the change was lawful, once `key` has attested them.
    `intended` has of those that are being replaced the SHA-256 of the new content, None of those that are
    being deleted. Digests of a bucket depend on how an object is written, so none is known in advance.
    """

    key: AttestationKey
    person: Person | Unnamed
    rows: dict[str, int] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)
    may_remain: dict[str, dict[str, int]] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    changes: dict[str, list[str | None]] = field(default_factory=dict)
    intended: dict[str, str | None] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)

    @classmethod
    def resumed(cls, objects: Objects, key: AttestationKey, person: Person | Unnamed) -> Erased:
        """Return where an interrupted erasure of the person ended, or at the beginning.

        Raises `UnattestedPlanError`: with a plan of another author the receipt would attest foreign changes.
        """
        progress, name = cls(key, person), _plan(person)
        body = objects.read(name)
        if body is None:
            return progress
        members, is_attested = read_attested(key, name, body)
        if not is_attested:
            raise UnattestedPlanError(name, refusal(key, "erasure"))
        for each in _PLANNED:
            setattr(progress, each, members.get(each, getattr(progress, each)))
        progress.shared = Shared(frozenset(members.get("claims", ())), members.get("letters", {}))
        return progress

    def count(self, found: Survey) -> None:
        """Count what was found. Of what an interrupted run had counted the greater number counts."""
        for known, counted in ((self.rows, found.rows), (self.redacted, found.redacted)):
            for name, count in counted.items():
                known[name] = max(count, known.get(name, 0))
        for (name, reason), count in found.may_remain.items():
            reasons = self.may_remain.setdefault(name, {})
            reasons[reason] = max(count, reasons.get(reason, 0))

    def note(
        self,
        objects: Objects,
        stored: Iterable[Stored],
        documents: Iterable[Stored] = (),
        made: Mapping[str, str] | None = None,
    ) -> None:
        """Write down which objects are about to be replaced, and which documents deleted.

        `made` says where the new content of an object is.
        """
        documents = list(documents)
        self.documents = sorted({*self.documents, *(each.name for each in documents)})
        for each in (*stored, *documents):
            digest = objects.digest(each)
            before, after = self.changes.get(each.name, (digest, ""))
            # A change that was made by others since is not attested.
            self.changes[each.name] = [before if after in ("", digest) else digest, ""]
        self.intended |= {name: _content(objects, aside) for name, aside in (made or {}).items()}
        self.intended |= dict.fromkeys((each.name for each in documents), None)
        self._write(objects)

    def settle(self, objects: Objects) -> None:
        """Take the digests of what has been replaced, and forget what has not been, or holds something else.

        A plan of version 0.3.0 does not say what was intended, so what is there counts.
        """
        open_ones = [name for name, (_, after) in self.changes.items() if after == ""]
        if not open_ones:
            return
        folders = {name.rpartition("/")[0] for name in open_ones}
        now = {each.name: each for folder in folders for each in objects.beneath(folder)}
        for name in open_ones:
            if name in self.intended and self.intended.pop(name) != _content(objects, name):
                del self.changes[name]
            else:
                self.changes[name][1] = objects.digest(now[name]) if name in now else None
        self._write(objects)

    def _write(self, objects: Objects) -> None:
        plan = {name: getattr(self, name) for name in _PLANNED}
        plan |= {"claims": sorted(self.shared.claims), "letters": self.shared.letters}
        name = _plan(self.person)
        objects.write(name, attest(self.key, name, {"format": FORMAT, **plan}))

    def old_versions(self) -> Iterator[str]:
        """Return the prefixes beneath which nothing may stay that was replaced or deleted.

        Whole hours, raw and compacted: what the lifecycle or the compaction took there had the rows as well.
        """
        changed = {*self.rows, *self.redacted}
        for place in sorted({found[1] for name in changed if (found := _PARTITION.match(name))}):
            yield f"{place}/"
            yield f"{COMPACTED}/{place}/"
        yield from self.documents

    def receipt(self, until: datetime, old_versions: OldVersions) -> dict[str, Any]:
        """Return what was done. It names no person; the same parameters make the same pseudonym."""
        return {
            "format": FORMAT,
            "pseudonym": self.person.pseudonym,
            "erased_at_ms": round(1_000 * until.timestamp()),
            "rows": _by_table(self.rows),
            "redacted": _by_table(self.redacted),
            "may_remain": [
                {"object": name, "rows": rows, "reason": reason}
                for name, reasons in sorted(self.may_remain.items())
                for reason, rows in sorted(reasons.items())
            ],
            "objects": sorted({*self.rows, *self.redacted}),
            "documents": self.documents,
            "changes": dict(sorted(self.changes.items())),
            "old_versions": old_versions.deleted,
            # They leave by themselves, once their lock has ended (docs/reference/archive.md).
            "locked_versions": old_versions.locked,
        }

    def finish(self, objects: Objects, receipt: dict[str, Any]) -> None:
        """File the receipt, attested, and forget the plan."""
        name = f"{ERASURES}/{self.person.pseudonym}/receipt-{receipt['erased_at_ms']}.json"
        objects.write(name, attest(self.key, name, receipt))
        objects.delete([_plan(self.person)])
        objects.delete_old_versions(_plan(self.person))


_PLANNED = ("rows", "redacted", "may_remain", "documents", "changes", "intended")


def settle_all(objects: Objects, key: AttestationKey) -> None:
    """Settle all interrupted erasures, before the same objects are changed again."""
    for each in objects.beneath(ERASURES):
        folder, _, file = each.name.rpartition("/")
        if file == _PLAN:
            # The audit reports a plan that is not attested.
            with suppress(UnattestedPlanError):
                Erased.resumed(objects, key, Unnamed(folder.rpartition("/")[2])).settle(objects)


def _content(objects: Objects, name: str) -> str | None:
    body = objects.read(name)
    return None if body is None else hashlib.sha256(body).hexdigest()


def _by_table(counts: Mapping[str, int]) -> dict[str, int]:
    tables: Counter[str] = Counter()
    for name, count in counts.items():
        tables[name.partition("/date=")[0]] += count
    return dict(sorted(tables.items()))


def _plan(person: Person | Unnamed) -> str:
    return f"{ERASURES}/{person.pseudonym}/{_PLAN}"
