"""Tables of this process's rows."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from glue_jobs.common.session import local_rows
from glue_jobs.delivery_audit.findings import Kind


def test_rows_of_this_process_become_a_table(spark: SparkSession) -> None:
    schema = StructType().add("text", StringType()).add("number", LongType()).add("truth", BooleanType())
    rows = [(Kind.LOST, 2**53 + 1, True), ("\u00e9\n\U0001f600", -1, False), (None, None, None)] * 1_000
    assert [tuple(each) for each in local_rows(spark, rows, schema).collect()] == rows
    assert local_rows(spark, [], schema).collect() == []
