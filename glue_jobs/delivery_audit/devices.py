"""Completeness by device: what its own numbers say about the events that reached the tap.

A device numbers every event it commits (`devicesequence`, within a `deviceepoch` that changes when its store
starts anew), and its contract decides which of them go up. So a number that the tap has not seen is a `gap`,
not yet a loss: the event may have had no route to the cloud. Gaps are an upper bound of what was lost between
the first and the last number seen; losses after the last cannot be seen at all. Only the device's own
statement (its manifest) can tell them apart.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf


def devices_by_day(tap: DataFrame) -> DataFrame:
    """One row for each `date`, `client_id` and `epoch` of good tap rows.

    `events` counts different numbers, each on the day it was first seen, so that days can be summed; `first`
    and `last` are the least and greatest; `tap_copies` counts rows beyond one each. Events of simple clients,
    without numbers, stand in rows of their own with `epoch`, `first`, `last` and `gaps` null.
    """
    numbered = sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull()
    sent = tap.where(sf.col("refusal").isNull()).select(
        "date",
        "client_id",
        sf.when(numbered, sf.col("epoch")).alias("epoch"),
        sf.when(numbered, sf.col("sequence")).alias("sequence"),
        sf.when(~numbered, sf.struct("source", "id")).alias("unnumbered"),
    )
    numbers = sent.groupBy("client_id", "epoch", "sequence", "unnumbered").agg(
        sf.min("date").alias("date"), sf.count(sf.lit(1)).alias("rows")
    )
    return numbers.groupBy("date", "client_id", "epoch").agg(
        sf.min("sequence").alias("first"),
        sf.max("sequence").alias("last"),
        sf.count(sf.lit(1)).alias("events"),
        _gaps(sf.min("sequence"), sf.max("sequence"), sf.count(sf.lit(1))).alias("gaps"),
        sf.sum(sf.col("rows") - 1).alias("tap_copies"),
    )


def devices(by_day: DataFrame) -> DataFrame:
    """The rows of `devices_by_day` over the whole window, those with most gaps first."""
    whole = by_day.groupBy("client_id", "epoch").agg(
        sf.min("first").alias("first"),
        sf.max("last").alias("last"),
        sf.sum("events").alias("events"),
        _gaps(sf.min("first"), sf.max("last"), sf.sum("events")).alias("gaps"),
        sf.sum("tap_copies").alias("tap_copies"),
    )
    return whole.orderBy(sf.desc_nulls_last("gaps"), "client_id", "epoch")


def _gaps(first: Column, last: Column, events: Column) -> Column:
    return last - first + 1 - events
