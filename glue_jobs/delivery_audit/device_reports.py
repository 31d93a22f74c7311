"""What devices say of themselves, read from the tap: what they stored and gave up, and their store's births.

A report counts only for the device that sent it: a source that names another one is forged.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.device_reports import DISCARDED, MANIFEST, STARTED, forwarder_source

REPORTS = (STARTED, DISCARDED, MANIFEST)

REPORT = """
    epoch string, birth string, lost_epoch string,
    statements array<struct<destination: string, first: bigint, last: bigint, count: bigint>>,
    deliveries array<struct<
        destination: string, outcome: string, reason: string, ranges: array<array<bigint>>
    >>,
    not_stored array<struct<channel: string, type: string, reason: string, count: bigint>>
"""
"""The members of all three (contract/schemas/device-*.v1.json), as far as the audit uses them."""

SALVAGE_SHIFT = 1 << 40
"""By how much a spool lowers the numbers of the events that it saved from a damaged one (docs/spool.md)."""

SENT_UNSTORED = "sent_unstored"
"""The reason of an entry in `not_stored` that counts deliveries from memory: its refusal has another one."""

_PLACE = ("date", "client_id", "source", "id", "accepted_at_ms", "file")


def report_of(event: Column, event_type: Column) -> Column:
    """The data of a report as a struct; null for any other event, and for a report that cannot be read."""
    data = sf.from_json(event, f"data struct<{REPORT}>", {"mode": "PERMISSIVE"})["data"]
    return sf.when(event_type.isin(*REPORTS), data)


def is_own() -> Column:
    """Of a report's row: whether the device that sent it is the one that its source names."""
    before, after = forwarder_source("\n").split("\n")
    return sf.col("source") == sf.concat(sf.lit(before), "client_id", sf.lit(after))


def reports(tap: DataFrame) -> DataFrame:
    """The readable reports of good tap rows that are their device's own, once each."""
    own = tap.where(sf.col("type").isin(*REPORTS) & is_own() & sf.col("report").isNotNull())
    first = sf.min_by(
        sf.struct("date", "accepted_at_ms", "file", "type", "epoch", "sequence", "report"),
        sf.struct("accepted_at_ms", "message_id", "index"),
    )
    grouped = own.groupBy("client_id", "source", "id").agg(first.alias("first"))
    return grouped.select("client_id", "source", "id", "first.*")


def statements(reports: DataFrame, uplinks: Sequence[str]) -> DataFrame:
    """What each manifest says of the uplink: `first`, `last`, `count` of `epoch`; `sequence` is its own."""
    stated = reports.where(sf.col("type") == MANIFEST).select(
        *_PLACE, "sequence", "report.epoch", sf.explode("report.statements").alias("stated")
    )
    stated = stated.where(sf.col("stated.destination").isin(*uplinks)).select(
        *_PLACE, "sequence", "epoch", "stated.first", "stated.last", "stated.count"
    )
    counted = (sf.col("count") > 0) & (sf.col("last") >= sf.col("first"))
    return stated.where(counted & sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull())


def births(reports: DataFrame) -> DataFrame:
    """Each life of a store that a device reported: `epoch`, `birth`, `lost_epoch`, the report's number."""
    return reports.where(sf.col("type") == STARTED).select(
        *_PLACE,
        "sequence",
        "report.epoch",
        "report.birth",
        sf.when(sf.col("report.lost_epoch") != "", sf.col("report.lost_epoch")).alias("lost_epoch"),
    )


def discards(reports: DataFrame, births: DataFrame, uplinks: Sequence[str]) -> DataFrame:
    """Ranges of numbers that a device gave up on their way up: `epoch`, `first`, `last`, `outcome`, `reason`.

    Negative numbers are those of events that were saved from the epoch before.
    """
    given_up = reports.where(sf.col("report.deliveries").isNotNull())
    given_up = given_up.select(*_PLACE, "epoch", sf.explode("report.deliveries").alias("given_up"))
    given_up = given_up.where(sf.col("given_up.destination").isin(*uplinks)).select(
        *_PLACE, "epoch", "given_up.outcome", "given_up.reason", sf.explode("given_up.ranges").alias("range")
    )
    before = births.groupBy("client_id", "epoch").agg(sf.max("lost_epoch").alias("lost_epoch"))
    known = given_up.join(before, on=["client_id", "epoch"], how="left")
    first, last = sf.get("range", sf.lit(0)), sf.get("range", sf.lit(1))
    salvaged = first < 0
    shift = sf.when(salvaged, sf.lit(SALVAGE_SHIFT)).otherwise(sf.lit(0))
    ranges = known.select(
        *_PLACE,
        sf.when(salvaged, sf.col("lost_epoch")).otherwise(sf.col("epoch")).alias("epoch"),
        "outcome",
        "reason",
        (first + shift).alias("first"),
        (last + shift).alias("last"),
    )
    return ranges.where(sf.col("epoch").isNotNull() & (sf.col("last") >= sf.col("first")))


def not_stored(reports: DataFrame) -> DataFrame:
    """Events that a device refused or gave up without a number: `channel`, `type`, `reason`, `count`."""
    entries = reports.where(sf.col("report.not_stored").isNotNull())
    entries = entries.select(*_PLACE, "epoch", sf.explode("report.not_stored").alias("entry"))
    named = entries.select(*_PLACE, "epoch", "entry.channel", "entry.type", "entry.reason", "entry.count")
    return named.where((sf.col("reason") != SENT_UNSTORED) & (sf.col("count") > 0))
