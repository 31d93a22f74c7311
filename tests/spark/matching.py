"""Filters over events, by Spark, in one job for all."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from eventplane.filters import Filter
from glue_jobs.delivery_audit.cesql import AttributeColumns
from glue_jobs.delivery_audit.expect import attributes_of, to_column


def by_spark(spark: SparkSession, tried: Sequence[Filter], texts: Sequence[str]) -> list[list[bool]]:
    """For each event of `texts`, whether it matches each of the filters."""
    rows = spark.createDataFrame(list(enumerate(texts)), "at int, event string")
    names, typed = attributes_of(tried)
    schemas = {
        "texts": (names, StringType()),
        "integers": (typed, IntegerType()),
        "booleans": (typed, BooleanType()),
    }
    parsed = rows.withColumns(
        {
            kind: sf.from_json(
                "event",
                StructType([StructField(name, type) for name in sorted({"type", *held})]),
                {"mode": "PERMISSIVE"},
            )
            for kind, (held, type) in schemas.items()
        }
    )
    attributes = AttributeColumns.read(names, typed)
    columns = [to_column(each, attributes).alias(f"f{at}") for at, each in enumerate(tried)]
    return [list(row)[1:] for row in parsed.select("at", *columns).orderBy("at").collect()]
