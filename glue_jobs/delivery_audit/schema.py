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

HANDOVER_ROW = StructType(
    [
        StructField("decided_at_ms", LongType()),
        StructField("entered_at_ms", LongType()),
        StructField("channel", StringType()),
        StructField("contract_version", StringType()),
        StructField("source", StringType()),
        StructField("id", StringType()),
        StructField("type", StringType()),
        StructField("outcome", StringType()),
        StructField("reason", StringType()),
        StructField("status", LongType()),
        StructField("attempt", LongType()),
        StructField("message_id", StringType()),
        StructField(CORRUPT, StringType()),
    ]
)
"""`eventplane.handover.HandoverRecord`."""


def in_folders(row: StructType) -> StructType:
    """`row` with the partition folders as columns. Named, so that Spark does not guess `hour=07` to be 7."""
    return StructType([*row.fields, *(StructField(name, StringType()) for name in FOLDERS)])
