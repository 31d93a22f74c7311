"""Where the archive holds rows about persons, in portions, and the objects without a person's rows.

Each is put in the place of the one with them at once. An interrupted erasure goes on from its `Progress`.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import AUDIT, COMPACTED, ERASURES, FOLDERS, Folder, Form
from eventplane.errors import EventPlaneError
from glue_jobs.common.archive import Archive, line_text, records, with_envelope
from glue_jobs.common.attestation import AttestationKey, attest, read_attested, refusal
from glue_jobs.common.hours import Days, hours_of
from glue_jobs.common.listing import LINES, PARQUET
from glue_jobs.common.objects import Objects, OldVersions, Stored
from glue_jobs.compaction.files import CODEC
from glue_jobs.erasure.person import Person

_AT_ONCE = 20
"""Raw objects that are in memory together. A writer's batch makes one of some MB of lines."""

_STAGING = f"{ERASURES}/staging"

FORMAT = 2
"""The version of plan and receipt."""

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
        """Return its rows with `file`; raw ones with `value`, their line."""
        names = [each.name for each in self.stored]
        if self.is_raw and self.folder is not None:
            read = records(Archive(spark, objects).lines(self.folder, names), self.folder)
            return with_envelope(read, self.folder).withColumn("line_text", line_text())
        rows = spark.read.option("mergeSchema", "true").parquet(*(f"{objects.uri}/{each}" for each in names))
        within = sf.substring_index("_metadata.file_path", f"/{self.table}/", -1)
        return rows.select("*", sf.concat(sf.lit(f"{self.table}/"), within).alias("file"))

    def found(self, spark: SparkSession, objects: Objects, person: Person) -> dict[str, int]:
        """Return how many of the person's rows are in which of its objects."""
        if not self.stored:
            return {}
        rows = self.rows(spark, objects)
        mine = rows.where(person.is_in(rows.columns)).groupBy("file").count().collect()
        return {each["file"]: each["count"] for each in mine}

    def rewrite(self, spark: SparkSession, objects: Objects, person: Person) -> None:
        """Remove the person's rows from its objects."""
        at_once = _AT_ONCE if self.is_raw else 1
        for start in range(0, len(self.stored), at_once):
            some = replace(self, stored=self.stored[start : start + at_once])
            rows = some.rows(spark, objects)
            kept = rows.where(~person.is_in(rows.columns))
            if self.is_raw:
                _replace_lines(objects, some, kept)
            else:
                _replace_parquet(objects, some, kept.drop("file"), person)


def _replace_lines(objects: Objects, portion: Portion, kept: DataFrame) -> None:
    lines: dict[str, list[str]] = {each.name: [] for each in portion.stored}
    for row in kept.select("file", "value").collect():
        lines[row["file"]].append(row["value"])
    for name, texts in lines.items():
        # As the writers do it: no time stamp, so that equal lines make equal bytes.
        body = "".join(f"{text}\n" for text in texts).encode()
        objects.write(name, gzip.compress(body, compresslevel=1, mtime=0))


def _replace_parquet(objects: Objects, portion: Portion, kept: DataFrame, person: Person) -> None:
    one = kept.repartition(1)
    if portion.folder and portion.folder.compaction:
        one = one.sortWithinPartitions(*portion.folder.compaction.order)
    place = f"{_STAGING}/{person.pseudonym}"
    one.write.mode("overwrite").option("compression", CODEC).parquet(f"{objects.uri}/{place}")
    (made,) = (each.name for each in objects.beneath(place) if each.name.endswith(PARQUET))
    objects.move(made, portion.stored[0].name)


def portions(objects: Objects, now: datetime) -> Iterator[Portion]:
    """Return everything that can hold a person's rows: a day of a table at a time, closed hours only.

    Raw rows come before the compacted ones of them: a compaction that runs meanwhile either sees its sources
    change and gives up, or is done before its result is looked at.
    """
    for folder in FOLDERS:
        if folder.is_personal and folder.form is Form.LINES:
            yield from _hourly(objects, folder.name, folder, now, is_raw=True)
            if folder.compaction:
                yield from _hourly(objects, f"{COMPACTED}/{folder.name}", folder, now, is_raw=False)
    for table in objects.folders(AUDIT):
        place = f"{AUDIT}/{table}"
        if stored := _named(objects.beneath(place), PARQUET):
            yield Portion(place, stored, None, is_raw=False)


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
    """The plan `name` of an interrupted erasure does not count, so nobody knows what was changed."""

    name: str
    problem: str
    message = "{name}: {problem}"


@dataclass(slots=True)
class Progress:
    """`rows` that were the person's by object, the audit's `documents` that named them, and the `changes`.

    It is written down before anything is removed: only by it a later run knows whose old versions to delete.
    `changes` has of each object the digest before, and the one after: None where it was deleted, '' while it
    is being replaced. By these an audit knows that the change was lawful, once `key` has attested them.
    """

    key: AttestationKey
    person: Person
    rows: dict[str, int] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    changes: dict[str, list[str | None]] = field(default_factory=dict)

    @classmethod
    def resumed(cls, objects: Objects, key: AttestationKey, person: Person) -> Progress:
        """Return where an interrupted erasure of the person ended, or at the beginning.

        Raises `UnattestedPlanError`: by a plan of somebody else the receipt would attest changes of others.
        """
        name = _plan(person)
        body = objects.read(name)
        if body is None:
            return cls(key, person)
        members, is_attested = read_attested(key, name, body)
        if not is_attested:
            raise UnattestedPlanError(name, refusal(key, "erasure"))
        return cls(key, person, members["rows"], members["documents"], members.get("changes", {}))

    def note(self, objects: Objects, rows: Mapping[Stored, int], documents: Iterable[Stored] = ()) -> None:
        """Write down what is about to be removed: rows of objects, and whole documents."""
        documents = list(documents)
        for stored, count in rows.items():
            self.rows[stored.name] = max(count, self.rows.get(stored.name, 0))
        self.documents = sorted({*self.documents, *(each.name for each in documents)})
        for stored in (*rows, *documents):
            before, _ = self.changes.get(stored.name, (objects.digest(stored), ""))
            self.changes[stored.name] = [before, ""]
        self._write(objects)

    def settle(self, objects: Objects) -> None:
        """Take the digests of what has been replaced."""
        open_ones = [name for name, (_, after) in self.changes.items() if after == ""]
        folders = {name.rpartition("/")[0] for name in open_ones}
        now = {each.name: each for folder in folders for each in objects.beneath(folder)}
        for name in open_ones:
            self.changes[name][1] = objects.digest(now[name]) if name in now else None
        self._write(objects)

    def _write(self, objects: Objects) -> None:
        plan = {"rows": self.rows, "documents": self.documents, "changes": self.changes}
        name = _plan(self.person)
        objects.write(name, attest(self.key, name, {"format": FORMAT, **plan}))

    def old_versions(self) -> Iterator[str]:
        """Return the prefixes beneath which nothing may stay that was replaced or deleted.

        Whole hours, raw and compacted: what the lifecycle or the compaction took there had the rows as well.
        """
        for place in sorted({found[1] for name in self.rows if (found := _PARTITION.match(name))}):
            yield f"{place}/"
            yield f"{COMPACTED}/{place}/"
        yield from self.documents

    def receipt(self, until: datetime, old_versions: OldVersions) -> dict[str, Any]:
        """Return what was removed. It names no person; the same parameters make the same pseudonym."""
        tables: Counter[str] = Counter()
        for name, count in self.rows.items():
            tables[name.partition("/date=")[0]] += count
        return {
            "format": FORMAT,
            "pseudonym": self.person.pseudonym,
            "erased_at_ms": round(1_000 * until.timestamp()),
            "rows": dict(sorted(tables.items())),
            "objects": sorted(self.rows),
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


def _plan(person: Person) -> str:
    return f"{ERASURES}/{person.pseudonym}/plan.json"
