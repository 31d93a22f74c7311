"""Devices by day: how many of their events came, what is missing by their own manifests, and their clocks.

A number that the tap has not seen is a `gap`, not yet a loss: the event may have had no route to the cloud,
and of what came after the last one seen a gap tells nothing. The device's manifests tell both apart.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.completeness import Completeness
from glue_jobs.delivery_audit.numbers import EPOCH

STATED = ("stated", "missing", "explained", "lost", "pending", "not_stored")
"""What manifests of the day say: numbered events that are `stated`; those `missing` from the tap, of which
the device gave up the `explained`, the `pending` are too young to be judged and the `lost` are lost. Then
events that the device did not store."""


def devices_by_day(tap: DataFrame, stated: Completeness, clocks: DataFrame) -> DataFrame:
    """One row for each `date`, `client_id` and `epoch` of good tap rows.

    `events` counts different numbers, each on the day it was first seen, so that days can be summed; `first`
    and `last` are the least and greatest; `tap_copies` counts rows beyond one each. Events of simple clients,
    without numbers, stand in rows of their own with `epoch`, `first`, `last` and `gaps` null. Then `STATED`,
    by the day of the manifest, and `skew_ms`, what the clock is ahead (negative: behind; null: unknown).
    """
    numbered = sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull()
    sent = tap.where(sf.col("refusal").isNull()).select(
        "date",
        "client_id",
        "message_id",
        "index",
        sf.when(numbered, sf.col("epoch")).alias("epoch"),
        sf.when(numbered, sf.col("sequence")).alias("sequence"),
        sf.when(~numbered, sf.struct("source", "id")).alias("unnumbered"),
    )
    numbers = sent.groupBy("client_id", "epoch", "sequence", "unnumbered").agg(
        sf.min("date").alias("date"), sf.count_distinct("message_id", "index").alias("rows")
    )
    by_day = numbers.groupBy("date", "client_id", "epoch").agg(
        sf.min("sequence").alias("first"),
        sf.max("sequence").alias("last"),
        sf.count(sf.lit(1)).alias("events"),
        _gaps(sf.min("sequence"), sf.max("sequence"), sf.count(sf.lit(1))).alias("gaps"),
        sf.sum(sf.col("rows") - 1).alias("tap_copies"),
    )
    joined = by_day.join(_stated(stated), on=["date", *EPOCH], how="left").fillna(0, list(STATED))
    return joined.join(clocks.select("client_id", "skew_ms"), on="client_id", how="left").select(
        *by_day.columns, *STATED, "skew_ms"
    )


def devices(by_day: DataFrame) -> DataFrame:
    """The rows of `devices_by_day` over the whole window, the worst first."""
    whole = by_day.groupBy("client_id", "epoch").agg(
        sf.min("first").alias("first"),
        sf.max("last").alias("last"),
        sf.sum("events").alias("events"),
        _gaps(sf.min("first"), sf.max("last"), sf.sum("events")).alias("gaps"),
        sf.sum("tap_copies").alias("tap_copies"),
        *(sf.sum(name).alias(name) for name in STATED),
        sf.first("skew_ms").alias("skew_ms"),
    )
    return whole.orderBy(sf.desc("lost"), sf.desc_nulls_last("gaps"), "client_id", "epoch")


def _stated(found: Completeness) -> DataFrame:
    open_yet, unexplained = sf.col("open"), sf.col("unexplained")
    manifests = found.statements.select(
        "date",
        *EPOCH,
        sf.col("count").alias("stated"),
        "missing",
        "explained",
        sf.when(open_yet, 0).otherwise(unexplained).alias("lost"),
        sf.when(open_yet, unexplained).otherwise(0).alias("pending"),
    )
    refused = found.not_stored.select("date", *EPOCH, sf.col("count").alias("not_stored"))
    both = manifests.unionByName(refused, allowMissingColumns=True)
    return both.groupBy("date", *EPOCH).agg(*(sf.sum(name).alias(name) for name in STATED))


def _gaps(first: Column, last: Column, events: Column) -> Column:
    return last - first + 1 - events
