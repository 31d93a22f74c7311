"""The archive's rows as Spark reads them; a test holds them against the core's records."""

from __future__ import annotations

from pyspark.sql.types import StringType, StructField, StructType

from eventplane.archive_layout import HANDOVERS_FOLDER, HOURLY, LEDGER_FOLDER, TAP_FOLDER
from glue_jobs.common.archive import CORRUPT, row_of

__all__ = ["CORRUPT", "HANDOVER_ROW", "LEDGER_ROW", "TAP_ROW", "in_folders"]

TAP_ROW = row_of(TAP_FOLDER)
"""`eventplane.ledger.TapRecord`."""

LEDGER_ROW = row_of(LEDGER_FOLDER)
"""`eventplane.ledger.LedgerRecord`."""

HANDOVER_ROW = row_of(HANDOVERS_FOLDER)
"""`eventplane.handover.HandoverRecord`."""


def in_folders(row: StructType) -> StructType:
    """`row` with the partition folders as columns. Named, so that Spark does not guess `hour=07` to be 7."""
    return StructType([*row.fields, *(StructField(name, StringType()) for name in HOURLY)])
