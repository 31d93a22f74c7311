"""Objects without a person's rows, each put in the place of the one with them at once."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import islice

from pyspark.sql import SparkSession

from eventplane.archive_layout import ERASURES
from glue_jobs.common.objects import Objects
from glue_jobs.compaction.files import CODEC
from glue_jobs.erasure.person import Person
from glue_jobs.erasure.tables import Portion

_AT_ONCE = 20
"""Raw objects that are in memory together. A writer's batch makes one of some MB of lines."""

_STAGING = f"{ERASURES}/staging"
_PARQUET = ".parquet"


def rewrite(spark: SparkSession, objects: Objects, portion: Portion, person: Person) -> None:
    """Remove the person's rows from the objects of `portion`."""
    if portion.is_raw:
        for names in _batches(portion.names):
            _rewrite_raw(spark, objects, Portion(portion.table, names, portion.folder, is_raw=True), person)
    else:
        for name in portion.names:
            _rewrite_parquet(spark, objects, portion, name, person)


def _rewrite_raw(spark: SparkSession, objects: Objects, portion: Portion, person: Person) -> None:
    rows = portion.rows(spark, objects)
    kept = rows.where(~person.is_in(rows.columns)).select("file", "value").collect()
    lines: dict[str, list[str]] = {name: [] for name in portion.names}
    for row in kept:
        lines[f"{portion.table}/{row['file'].rpartition(f'/{portion.table}/')[2]}"].append(row["value"])
    for name, texts in lines.items():
        # As the writers do it: no time stamp, so that equal lines make equal bytes.
        body = "".join(f"{text}\n" for text in texts).encode()
        objects.write(name, gzip.compress(body, compresslevel=1, mtime=0))


def _rewrite_parquet(
    spark: SparkSession, objects: Objects, portion: Portion, name: str, person: Person
) -> None:
    rows = spark.read.parquet(f"{objects.uri}/{name}")
    kept = rows.where(~person.is_in(rows.columns)).repartition(1)
    if portion.folder and portion.folder.compaction:
        kept = kept.sortWithinPartitions(*portion.folder.compaction.order)
    place = f"{_STAGING}/{person.pseudonym}"
    kept.write.mode("overwrite").option("compression", CODEC).parquet(f"{objects.uri}/{place}")
    (made,) = (each.name for each in objects.beneath(place) if each.name.endswith(_PARQUET))
    objects.move(made, name)


def clear_staging(objects: Objects) -> None:
    """Delete what the rewriting left, old versions included."""
    objects.delete(each.name for each in objects.beneath(_STAGING))
    objects.delete_old_versions(f"{_STAGING}/")


def _batches(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(names)
    while batch := tuple(islice(rest, _AT_ONCE)):
        yield batch
