"""Devices whose store began a new life within the window: numbers before it and after it do not compare."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.numbers import EPOCH


def changes(tap: DataFrame, births: DataFrame) -> DataFrame:
    """Each new epoch: `birth` and `lost_epoch` as the device reports them, null where it does not.

    A device's first epoch in the window is a change only if the device says that it recovered.
    """
    first = (
        tap.where(sf.col("epoch").isNotNull())
        .groupBy(*EPOCH)
        .agg(
            sf.min("accepted_at_ms").alias("accepted_at_ms"),
            sf.min_by("date", "accepted_at_ms").alias("date"),
            sf.min_by("file", "accepted_at_ms").alias("file"),
            sf.min("sequence").alias("sequence"),
        )
    )
    told = births.groupBy(*EPOCH).agg(
        sf.max("birth").alias("birth"), sf.max("lost_epoch").alias("lost_epoch")
    )
    # What was saved of a lost epoch can arrive after the news of the new one.
    lost = sf.col("lost_epoch")
    ended = births.where(lost.isNotNull()).select("client_id", lost.alias("epoch"), sf.lit(1).alias("ended"))
    ended = ended.distinct()
    known = first.join(told, on=list(EPOCH), how="left").join(ended, on=list(EPOCH), how="left")
    order = Window.partitionBy("client_id").orderBy(sf.desc_nulls_last("ended"), "accepted_at_ms", "epoch")
    numbered = known.withColumn("place", sf.row_number().over(order))
    return numbered.where((sf.col("place") > 1) | (sf.coalesce("birth", sf.lit("")) == "recovered"))
