"""A search for a person's names in all that the archive holds, which knows no tables and no columns.

It shares nothing with what removes rows but the names, so that it finds what that overlooked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import COMPACTIONS, PUBLISHED
from glue_jobs.common.hours import hour_of
from glue_jobs.common.objects import Objects
from glue_jobs.erasure.person import Person

_SKIPPED: Final = (COMPACTIONS, PUBLISHED, "athena")
"""Folders that hold names of objects and nothing else, and people's answers, which the job may not read."""

_LINES, _PARQUET = ".json.gz", ".parquet"
_DAY: Final = re.compile(r".*?/date=[^/]+")


def naming(
    spark: SparkSession, objects: Objects, person: Person, now: datetime, damaged: Collection[str] = ()
) -> list[str]:
    """Return the objects that name `person`, in order, but for hours that are still written to.

    Those that are known to be `damaged` are not opened.
    """
    found = []
    by_day: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name in _names(objects, now):
        suffix = next((each for each in (_LINES, _PARQUET) if name.endswith(each)), "")
        if suffix and name not in damaged:
            day = _DAY.match(name)
            by_day[suffix, day[0] if day else name].append(name)
        if person.is_named_in(name if suffix else f"{name} {_document(objects, name)}"):
            found.append(name)
    for (suffix, _), names in by_day.items():
        texts = _texts(spark, suffix, [f"{objects.uri}/{name}" for name in names])
        hits = texts.where(person.is_named(sf.col("text"))).select("file").distinct().collect()
        found += [name for name in names if any(hit["file"].endswith(f"/{name}") for hit in hits)]
    return sorted(set(found))


def _document(objects: Objects, name: str) -> str:
    return (objects.read(name) or b"").decode("utf-8", "replace")


def _texts(spark: SparkSession, suffix: str, uris: list[str]) -> DataFrame:
    if suffix == _LINES:
        rows, text = spark.read.text(uris), sf.col("value")
    else:
        rows, text = spark.read.option("mergeSchema", "true").parquet(*uris), sf.to_json(sf.struct("*"))
    return rows.select(text.alias("text"), sf.col("_metadata.file_path").alias("file"))


def _names(objects: Objects, now: datetime) -> Iterator[str]:
    for folder in objects.folders(""):
        if folder not in _SKIPPED:
            for each in objects.beneath(folder):
                hour = hour_of(each.name)
                if hour is None or hour.is_closed(now):
                    yield each.name
