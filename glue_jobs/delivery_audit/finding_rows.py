"""Findings as Spark rows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from glue_jobs.delivery_audit.findings import Finding, Kind
from glue_jobs.delivery_audit.hops import Hop

_NUMBERS = ("sequence", "at_ms")

FINDING = StructType(
    [StructField(name, LongType() if name in _NUMBERS else StringType()) for name in Finding._fields]
)
"""A `Finding` as Spark has it."""


def finding(kind: Kind | Column, hop: Hop, detail: Column, **others: Column) -> Column:
    """A row of `deliveries` as a `FINDING`, in which `others` stand for what the row says."""
    made = {
        "device": sf.col("client_id"),
        "archive_file": sf.col("file"),
        "at_ms": sf.coalesce("accepted_at_ms", "entered_at_ms"),
        "kind": kind if isinstance(kind, Column) else sf.lit(str(kind)),
        "hop": sf.lit(str(hop)),
        "detail": detail,
        **others,
    }
    return sf.struct(
        *(made.get(each.name, sf.col(each.name)).cast(each.dataType).alias(each.name) for each in FINDING)
    )


def text(*parts: str | Column) -> Column:
    """The parts in a row; a column that is null is a question mark."""
    return sf.concat(
        *(
            sf.lit(each) if isinstance(each, str) else sf.coalesce(each.cast("string"), sf.lit("?"))
            for each in parts
        )
    )
