"""Counting verdicts: how each route did on each day."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.route_filters import NO_ROUTE

EXPECTED = (
    Verdict.DELIVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.DROPPED,
    Verdict.LOST,
    Verdict.PENDING,
)
"""The ends of an expected delivery."""


def routes(deliveries: DataFrame) -> DataFrame:
    """One row for each `date` and `route`, the unrouted as a route called `NO_ROUTE`.

    A column for each verdict counts events; `expected` is the sum of the `EXPECTED` ones (nothing is expected
    of no route). `duplicated` counts the copies in inboxes beyond the first. `events` and `tap_copies` count
    each event on one of its routes only, so that they can be summed.
    """
    expected = sf.col("verdict").isin([str(each) for each in EXPECTED]) & (sf.col("route") != NO_ROUTE)
    return deliveries.groupBy("date", "route").agg(
        sf.max("destination").alias("destination"),
        sf.count_if(expected).alias("expected"),
        *(sf.count_if(sf.col("verdict") == each).alias(each) for each in Verdict),
        _sum(sf.greatest(sf.col("delivered") - 1, sf.lit(0))).alias("duplicated"),
        sf.count_if("replayed").alias("replayed"),
        sf.count_if("leads").alias("events"),
        _sum(sf.when(sf.col("leads"), sf.col("copies") - 1)).alias("tap_copies"),
    )


def _sum(counts: Column) -> Column:
    return sf.coalesce(sf.sum(counts), sf.lit(0))
