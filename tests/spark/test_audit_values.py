"""Spark reads the values that the audit judges by as the core does; `make audit-proof` compares a million."""

from pathlib import Path

from pyspark.sql import SparkSession

from lab.benchmarks.audit.values import VALUES, differences

LEAST = 20_000
"""Values that are compared."""


def test_generated_values_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    assert differences(spark, tmp_path, -(-LEAST // VALUES), seed=7) == []
