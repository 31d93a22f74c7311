"""Filters over events, by Spark, in one job for all."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from eventplane.filters import Filter
from glue_jobs.delivery_audit.attributes import with_attributes
from glue_jobs.delivery_audit.route_filters import to_column


def by_spark(spark: SparkSession, tried: Sequence[Filter], texts: Sequence[str]) -> list[list[bool]]:
    """For each event of `texts`, whether it matches each of the filters."""
    rows = spark.createDataFrame(list(enumerate(texts)), "at int, event string")
    parsed, attributes = with_attributes(rows, tried)
    columns = [to_column(each, attributes).alias(f"f{at}") for at, each in enumerate(tried)]
    return [list(row)[1:] for row in parsed.select("at", *columns).orderBy("at").collect()]
