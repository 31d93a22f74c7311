"""Dead letters: by whom and why they were made, and whether every refused item of a device has one."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from eventplane.contract import Place
from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from glue_jobs.delivery_audit.ledger import is_no_event


def refusals(tap: DataFrame, ledger: DataFrame) -> DataFrame:
    """The refused items of good tap rows against the router's own record of them.

    One row for each `client_id`, `reason` and `accepted_at_ms`, with the counts `refused`, `recorded` and
    `missing` (what `recorded` falls short).

    Counts are compared, not items: what is no event has no source and id, and the tap's queue gave its
    message another id than the router's queue did. The time of acceptance both have from IoT Core. Neither
    queue delivers just once, so the tap's copies are told by place and bytes, the router's by its attempts.
    """
    refused = tap.where(sf.col("refusal").isNotNull())
    refused = refused.groupBy("client_id", sf.col("refusal").alias("reason"), "accepted_at_ms").agg(
        sf.countDistinct("index", "refused").alias("refused"),
        sf.min("date").alias("date"),
        sf.min("file").alias("file"),
    )
    keys = ["client_id", "reason", "accepted_at_ms"]
    compared = refused.join(_recorded(ledger), on=keys, how="left")
    compared = compared.withColumn("recorded", sf.coalesce("recorded", sf.lit(0)))
    return compared.withColumn("missing", sf.greatest(sf.col("refused") - sf.col("recorded"), sf.lit(0)))


def dead_letters(deliveries: DataFrame, ledger: DataFrame, refusals: DataFrame) -> list[dict[str, Any]]:
    """How many dead letters there are, by `place` of their making and `reason`.

    `missing` counts the items that the cloud refused and did not record.
    """
    on_device = deliveries.where(sf.col("leads") & (sf.col("type") == DEAD_LETTER_TYPE))
    on_device = on_device.groupBy(sf.col("dead_letter_reason").alias("reason")).agg(
        sf.count("*").alias("count")
    )
    of_items = _recorded(ledger).groupBy("reason").agg(sf.sum("recorded").alias("count"))
    of_events = (
        _dead(ledger)
        .where(~is_no_event())
        .groupBy("source", "id", "route")
        .agg(sf.min("reason").alias("reason"))
    )
    of_events = of_events.groupBy("reason").agg(sf.count("*").alias("count"))
    missing = refusals.groupBy("reason").agg(sf.sum("missing").alias("missing"))
    in_cloud = of_items.unionByName(of_events).unionByName(missing, allowMissingColumns=True)
    placed = on_device.withColumn("place", sf.lit(Place.DEVICE)).unionByName(
        in_cloud.withColumn("place", sf.lit(Place.CLOUD)), allowMissingColumns=True
    )
    summed = placed.groupBy("place", "reason").agg(
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in ("count", "missing"))
    )
    return [row.asDict() for row in summed.orderBy("place", "reason").collect()]


def _dead(ledger: DataFrame) -> DataFrame:
    return ledger.where(sf.col("outcome") == Outcome.DEAD_LETTERED)


def _recorded(ledger: DataFrame) -> DataFrame:
    """How many refused items the router recorded, by `client_id`, `reason` and `accepted_at_ms`.

    A message that came again was recorded again, all its items in each attempt: the largest attempt counts.
    """
    items = _dead(ledger).where(is_no_event()).withColumnRenamed("entered_at_ms", "accepted_at_ms")
    place = ["client_id", "reason", "accepted_at_ms"]
    attempts = items.groupBy(*place, "message_id", "attempt").agg(sf.count("*").alias("items"))
    messages = attempts.groupBy(*place, "message_id").agg(sf.max("items").alias("items"))
    return messages.groupBy(*place).agg(sf.sum("items").alias("recorded"))
