"""The archive's rows as Spark reads them; a test holds them against the core's records."""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType

CORRUPT = "_corrupt_record"
"""Where Spark's reader puts a line that does not fit the schema."""

FOLDERS = ("date", "hour")
"""The archive's partition folders, `date=YYYY-MM-DD/hour=HH`: when a row was written, not when accepted."""

TAP_ROW = StructType(
    [
        StructField("accepted_at_ms", LongType()),
        StructField("archived_at_ms", LongType()),
        StructField("client_id", StringType()),
        StructField("topic", StringType()),
        StructField("message_id", StringType()),
        StructField("index", LongType()),
        StructField("event", StringType()),
        StructField("original_base64", StringType()),
        StructField("refusal", StringType()),
        StructField(CORRUPT, StringType()),
    ]
)
"""`eventplane.ledger.TapRecord`."""

LEDGER_ROW = StructType(
    [
        StructField("decided_at_ms", LongType()),
        StructField("entered_at_ms", LongType()),
        StructField("entered_by", StringType()),
        StructField("contract_version", StringType()),
        StructField("source", StringType()),
        StructField("id", StringType()),
        StructField("type", StringType()),
        StructField("priority", StringType()),
        StructField("client_id", StringType()),
        StructField("route", StringType()),
        StructField("destination", StringType()),
        StructField("outcome", StringType()),
        StructField("reason", StringType()),
        StructField("attempt", LongType()),
        StructField("message_id", StringType()),
        StructField(CORRUPT, StringType()),
    ]
)
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
