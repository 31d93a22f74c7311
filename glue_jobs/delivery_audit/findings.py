"""The evidence: one row for each thing worth knowing, with what is needed to follow it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from glue_jobs.delivery_audit.hops import Hop


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
    NOT_ALLOWED = "not_allowed"
    """Delivered, though its sender may not send it."""
    STALE_CONTRACT = "stale_contract"
    """Decided by a contract whose successor had long been in force."""
    UNCONFIRMED = "unconfirmed"
    """Decided by the contract that came with a router's code, and never by the one in force."""
    MISSING_MANIFEST = "missing_manifest"
    TWO_SENDERS = "two_senders"
    """One `source` and `id` from two senders: two events, of which one may imitate the other."""
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
    Kind.NOT_ALLOWED,
    Kind.STALE_CONTRACT,
    Kind.UNCONFIRMED,
    Kind.MISSING_MANIFEST,
)
"""What breaks a promise of the plane. The other kinds are allowed, and worth knowing."""


class Finding(NamedTuple):
    """One finding; None is what does not apply.

    `archive_file` is where the evidence lies, beneath the archive; `at_ms` when the event, or what tells of
    it, was accepted, Unix milliseconds.
    """

    date: str | None
    kind: str
    hop: str
    device: str | None = None
    epoch: str | None = None
    sequence: int | None = None
    source: str | None = None
    id: str | None = None
    type: str | None = None
    route: str | None = None
    destination: str | None = None
    contract_version: str | None = None
    archive_file: str | None = None
    at_ms: int | None = None
    detail: str | None = None


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
