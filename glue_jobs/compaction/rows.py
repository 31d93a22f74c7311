"""An hour's raw rows as the compacted table has them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from eventplane.archive_layout import Compaction, Folder
from glue_jobs.common import rows as records
from glue_jobs.common.archive import with_envelope
from glue_jobs.common.objects import Objects


def hour_rows(
    spark: SparkSession,
    objects: Objects,
    folder: Folder,
    compaction: Compaction,
    raw: str,
    earlier: Sequence[str],
) -> DataFrame:
    """The rows in the folder `raw` with `Folder.compacted_columns`, in no order.

    A row is a copy of one in the same hour, or in the compacted files `earlier` (names).
    """
    lines = records.lines_beneath(spark, f"{objects.uri}/{raw}")
    rows = with_envelope(records.parsed(lines, folder), folder)
    place = sf.regexp_extract("file", f"/({folder.name}/[^/]+/[^/]+/[^/]+)$", 1)
    rows = rows.withColumn("archive_file", place)
    return _marked(spark, objects, rows, compaction, earlier).select(
        *(each.name for each in folder.compacted_columns)
    )


def _marked(
    spark: SparkSession, objects: Objects, rows: DataFrame, compaction: Compaction, earlier: Sequence[str]
) -> DataFrame:
    # What could not be read has no identity but its text.
    same = Window.partitionBy(*compaction.identity, "line_text").orderBy("archive_file")
    is_later = sf.row_number().over(same) > 1
    if not earlier:
        return rows.withColumn("is_copy", is_later)
    known = spark.read.parquet(*(f"{objects.uri}/{name}" for name in earlier))
    seen = known.select(*compaction.identity).distinct().withColumn("seen", sf.lit(True))
    found = rows.join(seen, list(compaction.identity), "left")
    return found.withColumn("is_copy", is_later | sf.coalesce("seen", sf.lit(False)))
