"""The evidence: one row for each thing worth knowing, with what is needed to follow it."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType


class Kind(StrEnum):
    """What was found."""

    LOST = "lost"
    MISROUTED = "misrouted"
    """Recorded on a route, or at an inbox, that the contract does not give the event; it has others."""
    UNROUTED_DELIVERED = "unrouted_delivered"
    """Delivered, though the contract gives it no route at all."""
    REORDERED = "reordered"
    FORGED = "forged"
    """Recorded as what the devices' side of the archive does not bear out."""
    MISSING_MANIFEST = "missing_manifest"
    DUPLICATE = "duplicate"
    EXPIRED = "expired"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"
    EPOCH_CHANGE = "epoch_change"
    CLOCK_SKEW = "clock_skew"
    LATE = "late"


BROKEN = (
    Kind.LOST,
    Kind.MISROUTED,
    Kind.UNROUTED_DELIVERED,
    Kind.REORDERED,
    Kind.FORGED,
    Kind.MISSING_MANIFEST,
)
"""What breaks a promise of the plane. The other kinds are allowed, and worth knowing."""

FINDING = StructType(
    [
        StructField("date", StringType()),
        StructField("kind", StringType()),
        StructField("hop", StringType()),
        StructField("device", StringType()),
        StructField("epoch", StringType()),
        StructField("sequence", LongType()),
        StructField("source", StringType()),
        StructField("id", StringType()),
        StructField("type", StringType()),
        StructField("route", StringType()),
        StructField("destination", StringType()),
        StructField("contract_version", StringType()),
        StructField("archive_file", StringType()),
        StructField("at_ms", LongType()),
        StructField("detail", StringType()),
    ]
)
"""A finding; null is what does not apply. `archive_file` is where the evidence lies, beneath the archive;
`at_ms` when the event, or what tells of it, was accepted, Unix milliseconds."""


def findings(rows: DataFrame, kind: Kind | Column, hop: str | Column, detail: Column) -> DataFrame:
    """`rows` as findings. Columns of a finding that they have are taken over; a `client_id` is the `device`,
    `accepted_at_ms` stands for `at_ms` and `file` for `archive_file`."""
    stand_ins = {"device": "client_id", "at_ms": "accepted_at_ms", "archive_file": "file"}
    made = {
        "kind": kind if isinstance(kind, Column) else sf.lit(str(kind)),
        "hop": hop if isinstance(hop, Column) else sf.lit(str(hop)),
        "detail": detail,
    }

    def member(name: str) -> Column:
        if name in made:
            return made[name]
        held = next((each for each in (name, stand_ins.get(name)) if each in rows.columns), None)
        return sf.col(held) if held else sf.lit(None)

    return rows.select(*(member(field.name).cast(field.dataType).alias(field.name) for field in FINDING))


def text(*parts: str | Column) -> Column:
    """The parts in a row; a column that is null is a question mark."""
    return sf.concat(
        *(
            sf.lit(each) if isinstance(each, str) else sf.coalesce(each.cast("string"), sf.lit("?"))
            for each in parts
        )
    )
