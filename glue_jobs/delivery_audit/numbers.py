"""A device's numbers as ranges: which of them the tap has not seen."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

EPOCH = ("client_id", "epoch")

MAX_NUMBERED = 10_000
"""Most numbers of one range that are told one by one; a longer one is told as a range. Ours: whoever forges a
manifest of 10^12 events shall not fill the disk with findings."""


def seen(tap: DataFrame) -> DataFrame:
    """The numbers of good tap rows: `client_id`, `epoch`, `sequence`, once each."""
    numbered = tap.where(sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull())
    return numbered.select(*EPOCH, "sequence").distinct()


def unseen(seen: DataFrame, stated: DataFrame) -> DataFrame:
    """Ranges `first` to `last` without a seen number, between 1 and the greatest that was seen or `stated`.

    `is_before` marks what lies before the first seen one.
    """
    order = Window.partitionBy(*EPOCH).orderBy("sequence")
    previous = sf.lag("sequence").over(order)
    steps = seen.select(*EPOCH, "sequence", previous.alias("previous"))
    steps = steps.where(sf.col("previous").isNull() | (sf.col("sequence") > sf.col("previous") + 1))
    within = steps.select(
        *EPOCH,
        (sf.coalesce("previous", sf.lit(0)) + 1).alias("first"),
        (sf.col("sequence") - 1).alias("last"),
        sf.col("previous").isNull().alias("is_before"),
    ).where(sf.col("last") >= sf.col("first"))
    greatest = seen.groupBy(*EPOCH).agg(sf.max("sequence").alias("greatest"))
    newest = stated.groupBy(*EPOCH).agg(sf.max("last").alias("newest"))
    behind = newest.join(greatest, on=list(EPOCH), how="left").select(
        *EPOCH,
        (sf.coalesce("greatest", sf.lit(0)) + 1).alias("first"),
        sf.col("newest").alias("last"),
        sf.lit(False).alias("is_before"),
    )
    return within.unionByName(behind.where(sf.col("last") >= sf.col("first")))


def overlaps(ranges: DataFrame, others: DataFrame) -> DataFrame:
    """`ranges` cut to what they share with one of `others` of their epoch, whose columns stand beside."""
    first, last = sf.greatest("first", "other_first"), sf.least("last", "other_last")
    renamed = others.withColumnsRenamed({"first": "other_first", "last": "other_last"})
    shared = ranges.join(renamed, on=list(EPOCH)).withColumns({"low": first, "high": last})
    return (
        shared.where(sf.col("high") >= sf.col("low"))
        .withColumns({"first": sf.col("low"), "last": sf.col("high")})
        .drop("low", "high", "other_first", "other_last")
    )


def length() -> Column:
    """How many numbers a range has."""
    return sf.col("last") - sf.col("first") + 1


def one_by_one(ranges: DataFrame) -> DataFrame:
    """`ranges` as rows of one number; ranges of more than `MAX_NUMBERED` stay as they are."""
    short = ranges.where(length() <= MAX_NUMBERED)
    single = short.withColumn("number", sf.explode(sf.sequence("first", "last")))
    single = single.withColumns({"first": sf.col("number"), "last": sf.col("number")}).drop("number")
    return single.unionByName(ranges.where(length() > MAX_NUMBERED))
