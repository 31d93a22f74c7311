"""Where the archive holds rows about persons: raw lines and Parquet files, in portions."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import AUDIT, COMPACTED, FOLDERS, Folder, Form
from glue_jobs.common import rows as records
from glue_jobs.common.archive import with_envelope
from glue_jobs.common.hours import Days, hours_of
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.erasure.person import Person

_RAW = ".json.gz"
_PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class Portion:
    """Objects (`names`) of one `table`; `folder` is what they were written as, None for an audit's table."""

    table: str
    names: tuple[str, ...]
    folder: Folder | None
    is_raw: bool

    def rows(self, spark: SparkSession, objects: Objects) -> DataFrame:
        """Its rows with `file`; raw ones with `value`, their line."""
        uris = [f"{objects.uri}/{name}" for name in self.names]
        if not self.is_raw or self.folder is None:
            rows = spark.read.option("mergeSchema", "true").parquet(*uris)
            return rows.select("*", sf.col("_metadata.file_path").alias("file"))
        parsed = records.parsed(records.lines(spark, uris), self.folder)
        return with_envelope(parsed, self.folder)

    def found(self, spark: SparkSession, objects: Objects, person: Person) -> dict[str, int]:
        """How many of the person's rows are in which of its objects."""
        rows = self.rows(spark, objects)
        mine = rows.where(person.is_in(rows.columns)).groupBy("file").count().collect()
        by_uri = {each["file"].rpartition(f"/{self.table}/")[2]: each["count"] for each in mine}
        return {f"{self.table}/{rest}": count for rest, count in by_uri.items()}


def portions(objects: Objects, now: datetime) -> Iterator[Portion]:
    """Everything that can hold a person's rows: a day of a table at a time, closed hours only.

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
        if names := _names(objects.beneath(place), _PARQUET):
            yield Portion(place, names, None, is_raw=False)


def documents(objects: Objects) -> list[str]:
    """The audit's documents, and its lists of what to send again, by name."""
    return [each.name for each in objects.beneath(AUDIT) if each.name.endswith((".json", ".html", _RAW))]


def document_text(objects: Objects, name: str) -> str:
    """The text of a document; empty when it is gone. Raises OSError for one that is damaged."""
    body = objects.read(name) or b""
    return (gzip.decompress(body) if name.endswith(_RAW) else body).decode("utf-8")


def _hourly(
    objects: Objects, table: str, folder: Folder, now: datetime, *, is_raw: bool
) -> Iterator[Portion]:
    by_day: dict[str, list[str]] = {}
    for hour in hours_of(objects, table, Days()):
        if hour.is_closed(now):
            stored = objects.beneath(f"{table}/{hour.partition}")
            names = _names(stored, _RAW if is_raw else _PARQUET)
            by_day.setdefault(f"{hour.start:%Y-%m-%d}", []).extend(names)
    for day in by_day.values():
        if day:
            yield Portion(table, tuple(day), folder, is_raw)


def _names(stored: list[Stored], suffix: str) -> tuple[str, ...]:
    return tuple(each.name for each in stored if each.name.endswith(suffix))
