"""Rows written as sorted Parquet files of the right size, and read again to see that they are all there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from eventplane.archive_layout import COMPACTED, HOURLY, Compaction, Folder
from glue_jobs.common.archive import ascii_part, struct_of
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import PARQUET
from glue_jobs.common.objects import Objects, Stored

MIB = 1 << 20
WANTED_BYTES = 256 * MIB
MOST_BYTES = 512 * MIB
"""A file's size: enough of it that opening is nothing, and not so much that one reader has it all. An hour of
less than 128 MiB is one smaller file."""

CODEC = "zstd"

# What is expected: as Parquet, sorted and in zstd, the rows take about as much as their gzipped lines.
_EXPECTED = 1.0

_PLACE: Final = (*HOURLY, "run")
"""The folders of a compacted file below its table."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of rows, without their order: how many, and the sum of their hashes."""

    rows: int
    checksum: int
    line_texts: int

    @property
    def sums(self) -> tuple[int, int]:
        """The values that errors show of it."""
        return self.rows, self.checksum

    def plus(self, other: Content) -> Content:
        """Return the content of both; the checksum wraps as Spark's sum does."""
        checksum = (self.checksum + other.checksum + (1 << 63)) % (1 << 64) - (1 << 63)
        return Content(self.rows + other.rows, checksum, self.line_texts + other.line_texts)


EMPTY: Final = Content(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, by hour, and the content that went into all of them."""

    files: Mapping[Hour, Sequence[Stored]]
    content: Content


def write_files(
    rows: DataFrame,
    objects: Objects,
    folder: Folder,
    compaction: Compaction,
    runs: Mapping[Hour, str],
    raw_bytes: int,
) -> Written:
    """Write `rows` beneath the folders of their hours and `runs`, in place of what was there.

    Of several hours each becomes one file. How many files are right for a single one is known when they are
    written: if the first guess is far off, once more.
    """
    written = _write(rows, objects, folder, compaction, runs, _files(raw_bytes * _EXPECTED))
    if len(runs) == 1:
        sizes = [each.size for files in written.files.values() for each in files]
        is_split = len(sizes) > 1 and sum(sizes) < len(sizes) * WANTED_BYTES / 2
        if max(sizes, default=0) > MOST_BYTES or is_split:
            written = _write(rows, objects, folder, compaction, runs, _files(sum(sizes)))
    return written


def content_of(
    spark: SparkSession, objects: Objects, folder: Folder, files: Mapping[Hour, Sequence[Stored]]
) -> dict[Hour, Content]:
    """Return what Parquet files hold, by the hour in whose folder they lie."""
    names = [each.name for found in files.values() for each in found]
    if not names:
        return {}
    hours = [StructField(each, StringType()) for each in HOURLY]
    reader = spark.read.option("basePath", f"{objects.uri}/{COMPACTED}/{folder.name}")
    reader = reader.schema(StructType([*struct_of(folder.compacted_columns).fields, *hours]))
    rows = reader.parquet(*(f"{objects.uri}/{name}" for name in names))
    found = rows.groupBy(*HOURLY).agg(*_figures(folder)).collect()
    by_partition = {hour.partition: hour for hour in files}
    return {by_partition[f"date={date}/hour={hour}"]: Content(*figures) for date, hour, *figures in found}


def partition_of(file: str, folder: Folder) -> Column:
    """Return the hour (`Hour.partition`) in whose folder the object named by the column `file` lies."""
    return ascii_part(sf.col(file), len(f"{folder.name}/") + 1, len("date=YYYY-MM-DD/hour=HH"))


def _write(
    rows: DataFrame,
    objects: Objects,
    folder: Folder,
    compaction: Compaction,
    runs: Mapping[Hour, str],
    files: int,
) -> Written:
    partition = partition_of("archive_file", folder)
    run = sf.create_map(*(sf.lit(each) for hour, name in runs.items() for each in (hour.partition, name)))
    placed = rows.withColumns(
        {
            "date": ascii_part(partition, len("date=") + 1, len("YYYY-MM-DD")),
            "hour": sf.right(partition, sf.lit(len("HH"))),
            "run": run[partition],
        }
    )
    if len(runs) > 1:
        placed = placed.repartition(len(runs), *_PLACE)
    else:
        placed = placed.repartitionByRange(files, *compaction.order) if files > 1 else placed.repartition(1)
    observed = Observation()
    ordered = placed.sortWithinPartitions(*_PLACE, *compaction.order).observe(observed, *_figures(folder))
    writer = ordered.write.partitionBy(*_PLACE).mode("overwrite").option("compression", CODEC)
    # Of what lies there only the runs that are written are replaced.
    writer = writer.option("partitionOverwriteMode", "dynamic")
    writer.parquet(f"{objects.uri}/{COMPACTED}/{folder.name}")
    places = {hour: f"{hour.compacted(folder.name)}/run={name}" for hour, name in runs.items()}
    return Written(
        {hour: _parquet(objects, place) for hour, place in places.items()},
        Content(**{name: int(value) for name, value in observed.get.items()}),
    )


def _figures(folder: Folder) -> list[Column]:
    names = sorted(each.name for each in folder.compacted_columns)
    return [
        sf.count(sf.lit(1)).alias("rows"),
        # Not of doubles, and wrapping: equal rows in any order have an equal sum.
        sf.coalesce(sf.sum(sf.xxhash64(*names)), sf.lit(0)).alias("checksum"),
        sf.count("line_text").alias("line_texts"),
    ]


def _parquet(objects: Objects, place: str) -> list[Stored]:
    return [each for each in objects.beneath(place) if each.name.endswith(PARQUET)]


def _files(size: float) -> int:
    return max(1, round(size / WANTED_BYTES))
