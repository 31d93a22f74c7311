"""The search for what an erasure overlooked. It knows no tables and no columns, only the names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType

from eventplane.archive_layout import COMPACTIONS, PUBLISHED
from eventplane.written import WRITTEN
from glue_jobs.common.hours import hour_of
from glue_jobs.common.listing import LINES, PARQUET
from glue_jobs.common.objects import Objects
from glue_jobs.erasure.person import Eraser

_SKIPPED: Final = (COMPACTIONS, PUBLISHED, WRITTEN, "athena")
"""Folders that hold names of objects and nothing else, and people's answers, which the job may not read."""

_DAY: Final = re.compile(r".*?/date=[^/]+")


def naming(
    spark: SparkSession, objects: Objects, eraser: Eraser, now: datetime, damaged: Collection[str] = ()
) -> list[str]:
    """Return the objects that name the person, in order, but for hours that are still written to.

    Objects that are known to be `damaged` are not opened.
    """
    found = []
    by_day: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name in _names(objects, now):
        suffix = next((each for each in (LINES, PARQUET) if name.endswith(each)), "")
        if suffix and name not in damaged:
            day = _DAY.match(name)
            by_day[suffix, day[0] if day else name].append(name)
        if eraser.names(name) or (not suffix and eraser.names(_document(objects, name))):
            found.append(name)
    for (suffix, _), names in by_day.items():
        texts = _texts(spark, suffix, [f"{objects.uri}/{name}" for name in names])
        hits = texts.rdd.mapPartitions(lambda rows: [_hits(rows, eraser)]).fold(set(), set.union)
        found += [name for name in names if any(hit.endswith(f"/{name}") for hit in hits)]
    return sorted(set(found))


def _hits(rows: Iterable[Any], eraser: Eraser) -> set[str]:
    return {row["file"] for row in rows if eraser.names(row["text"])}


def _document(objects: Objects, name: str) -> str:
    return (objects.read(name) or b"").decode("utf-8", "replace")


def _texts(spark: SparkSession, suffix: str, uris: list[str]) -> DataFrame:
    if suffix == LINES:
        rows, text = spark.read.text(uris), sf.col("value")
    else:
        rows = spark.read.option("mergeSchema", "true").parquet(*uris)
        # Numbers hold no name, and may look like one.
        texts = (each.name for each in rows.schema if isinstance(each.dataType, StringType))
        text = sf.to_json(sf.struct(*texts))
    return rows.select(text.alias("text"), sf.col("_metadata.file_path").alias("file"))


def _names(objects: Objects, now: datetime) -> Iterator[str]:
    for folder in objects.folders(""):
        if folder not in _SKIPPED:
            for each in objects.beneath(folder):
                hour = hour_of(each.name)
                if hour is None or hour.is_closed(now):
                    yield each.name
