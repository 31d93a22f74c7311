"""The archive's rows as Spark reads them; a test holds them against the core's records."""

from __future__ import annotations

from pyspark.sql.types import StringType, StructField, StructType

from eventplane.archive_layout import LEDGER_FOLDER, TAP_FOLDER
from glue_jobs.common.rows import CORRUPT, row_of

__all__ = ["CORRUPT", "FOLDERS", "LEDGER_ROW", "TAP_ROW", "in_folders"]

FOLDERS = ("date", "hour")
"""The archive's partition folders, `date=YYYY-MM-DD/hour=HH`: when a row was written, not when accepted."""

TAP_ROW = row_of(TAP_FOLDER)
"""`eventplane.ledger.TapRecord`."""

LEDGER_ROW = row_of(LEDGER_FOLDER)
"""`eventplane.ledger.LedgerRecord`."""


def in_folders(row: StructType) -> StructType:
    """`row` with the partition folders as columns. Named, so that Spark does not guess `hour=07` to be 7."""
    return StructType([*row.fields, *(StructField(name, StringType()) for name in FOLDERS)])
