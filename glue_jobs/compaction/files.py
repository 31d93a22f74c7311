"""Rows written as sorted Parquet files of the right size, and read again to see that they are all there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import Compaction
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


@dataclass(frozen=True, slots=True)
class Content:
    """What rows are, without their order: how many, and the sum of their hashes."""

    rows: int
    checksum: int
    copies: int
    line_texts: int

    @property
    def told(self) -> tuple[int, int]:
        return self.rows, self.checksum


@dataclass(frozen=True, slots=True)
class Written:
    """The files (names) that were written, and the content that went into them."""

    files: tuple[str, ...]
    content: Content


def write_files(
    rows: DataFrame, objects: Objects, place: str, compaction: Compaction, raw_bytes: int
) -> Written:
    """Write `rows` beneath the folder `place`, in place of what was there.

    How many files are right is known when they are written: if the first guess is far off, once more.
    """
    written = _write(rows, objects, place, compaction, _files(raw_bytes * _EXPECTED))
    sizes = [each.size for each in _parquet(objects, place)]
    if max(sizes, default=0) > MOST_BYTES or (len(sizes) > 1 and sum(sizes) < len(sizes) * WANTED_BYTES / 2):
        written = _write(rows, objects, place, compaction, _files(sum(sizes)))
    return written


def content_of(spark: SparkSession, objects: Objects, files: Sequence[str]) -> Content:
    """What stands in Parquet files."""
    rows = spark.read.parquet(*(f"{objects.uri}/{name}" for name in files))
    found = rows.agg(*_figures(rows)).collect()[0].asDict()
    return _content(found)


def _write(rows: DataFrame, objects: Objects, place: str, compaction: Compaction, files: int) -> Written:
    spread = rows.repartitionByRange(files, *compaction.order) if files > 1 else rows.repartition(1)
    observed = Observation()
    ordered = spread.sortWithinPartitions(*compaction.order).observe(observed, *_figures(rows))
    ordered.write.mode("overwrite").option("compression", CODEC).parquet(f"{objects.uri}/{place}")
    return Written(tuple(each.name for each in _parquet(objects, place)), _content(observed.get))


def _figures(rows: DataFrame) -> list:
    names = sorted(rows.columns)
    return [
        sf.count(sf.lit(1)).alias("rows"),
        # Not of doubles, and wrapping: equal rows in any order have an equal sum.
        sf.coalesce(sf.sum(sf.xxhash64(*names)), sf.lit(0)).alias("checksum"),
        sf.count(sf.when(sf.col("is_copy"), 1)).alias("copies"),
        sf.count("line_text").alias("line_texts"),
    ]


def _content(found: dict[str, int]) -> Content:
    return Content(**{name: int(found[name]) for name in ("rows", "checksum", "copies", "line_texts")})


def _parquet(objects: Objects, place: str) -> list[Stored]:
    return [each for each in objects.beneath(place) if each.name.endswith(PARQUET)]


def _files(size: float) -> int:
    return max(1, round(size / WANTED_BYTES))
