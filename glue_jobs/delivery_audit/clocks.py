"""Devices' clocks, estimated from the quickest of their events."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

TOLERANCE_MS = 10_000
"""How far a clock may seem off without being called so, milliseconds. Ours: more than a normal event waits on
its way up (a batch's delay, a busy line), less than what would turn the order of a person's day."""

MIN_SAMPLES = 20
"""Fewest events that can show a clock to be behind. Ours: a few late events look the same."""


def clocks(tap: DataFrame) -> DataFrame:
    """One row for each `client_id` with timed events: `samples`, and `skew_ms`, positive when ahead.

    No event arrives before it is recorded. So the least time from `recordedtime` to acceptance is the
    quickest way up less what the clock is ahead, and what a device differs from the fleet's median is its
    clock. One that was offline all day looks as if it were behind.
    """
    travel = sf.col("accepted_at_ms") - sf.col("recorded_at_ms")
    least = (
        tap.where(travel.isNotNull())
        .groupBy("client_id")
        .agg(
            sf.min(travel).alias("least_ms"),
            sf.count(sf.lit(1)).alias("samples"),
            sf.max("date").alias("date"),
            sf.min_by("file", travel).alias("file"),
            sf.min_by("accepted_at_ms", travel).alias("accepted_at_ms"),
        )
    )
    # A fleet that is wrong as a whole is measured against the cloud.
    usual = sf.least(sf.greatest(sf.percentile("least_ms", 0.5), sf.lit(0)), sf.lit(TOLERANCE_MS))
    fleet = least.agg(usual.cast("long").alias("usual_ms"))
    skew = sf.col("usual_ms") - sf.col("least_ms")
    known = least.crossJoin(sf.broadcast(fleet)).withColumn("skew_ms", skew)
    behind = (sf.col("skew_ms") < -TOLERANCE_MS) & (sf.col("samples") >= MIN_SAMPLES)
    return known.withColumn("is_off", (sf.col("skew_ms") > TOLERANCE_MS) | behind)
