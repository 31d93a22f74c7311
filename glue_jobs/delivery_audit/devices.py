"""The devices' side: what each sent and stated, brought together by Spark and judged device by device."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from glue_jobs.delivery_audit.clocks import usual_ms
from glue_jobs.delivery_audit.device import COUNTS, Device, Scope
from glue_jobs.delivery_audit.finding_rows import FINDING
from glue_jobs.delivery_audit.verdicts import Verdict
from glue_jobs.delivery_audit.watermark import Watermark

HOUR_MS = 3_600_000


def _fields(*names: str, kind: type[LongType] = LongType) -> list[StructField]:
    return [StructField(name, kind()) for name in names]


DEVICE = StructType(
    [
        StructField("client_id", StringType()),
        StructField("epoch", StringType()),
        *_fields("first", "last", "events", "gaps", "tap_copies", *COUNTS, "skew_ms"),
    ]
)
"""One device's epoch. `events` counts different numbers, `first` and `last` are the least and the greatest,
`gaps` those between them that were not seen: not yet losses, the event may have had no route to the cloud.
`tap_copies` counts copies beyond one each. Events of simple clients, without numbers, stand in rows of their
own with `epoch`, `first`, `last` and `gaps` null. What manifests say: numbered events that are `stated`;
those `missing` from the tap, of which the device gave up the `explained`, the `pending` are too young to be
judged and the `lost` are lost, `acknowledged_lost` of them after IoT Core had acknowledged them; events
`not_stored`. `skew_ms` is what the clock is ahead (null: unknown)."""

DAY = StructType([StructField("date", StringType()), *DEVICE.fields])

HOUR = StructType([StructField("hour", StringType()), *_fields("events", "lost", "late", "pending")])
"""One hour of acceptance of one device, on all hops."""

JUDGED = StructType(
    [
        StructField("client_id", StringType()),
        StructField("lost", LongType()),
        StructField("findings", ArrayType(FINDING)),
        StructField("days", ArrayType(DAY)),
        StructField("epochs", ArrayType(DEVICE)),
        StructField("hours", ArrayType(HOUR)),
    ]
)


def hours_by_device(deliveries: DataFrame, watermark: Watermark) -> DataFrame:
    """One row for each device with its `hours`: what came in each, by epoch, in the window and beside it."""
    leads = sf.col("leads")
    rows = deliveries.where(sf.col("accepted_at_ms").isNotNull()).withColumn("is_other", sf.lit(False))
    # The same event under another number: the number was seen, the event counts once.
    again = rows.where(sf.col("numbers").isNotNull()).select(
        *(
            name
            for name in rows.columns
            if name not in ("client_id", "epoch", "sequence", "numbers", "is_other")
        ),
        sf.explode("numbers").alias("number"),
        sf.lit(True).alias("is_other"),
    )
    again = again.select("*", "number.*").drop("number")
    counts = leads & ~sf.col("is_other") & sf.col("within")
    numbered = sf.col("sequence").isNotNull() & sf.col("epoch").isNotNull()
    travel = sf.when(counts, sf.col("accepted_at_ms") - sf.col("recorded_at_ms"))
    late = watermark.is_late(sf.col("accepted_at_ms"), sf.col("archived_at_ms")) & leads
    late = late | watermark.is_late(sf.col("entered_at_ms"), sf.col("delivered_at_ms"))
    verdict = sf.when(~sf.col("is_other"), sf.col("verdict"))
    by_hour = (
        rows.unionByName(again, allowMissingColumns=True)
        .groupBy("client_id", "epoch", "within", sf.floor(sf.col("accepted_at_ms") / HOUR_MS).alias("hour"))
        .agg(
            sf.count_if(counts).alias("events"),
            sf.coalesce(sf.sum(sf.when(counts, sf.col("copies") - 1)), sf.lit(0)).alias("tap_copies"),
            sf.sort_array(sf.collect_list(sf.when(leads & numbered, sf.col("sequence")))).alias("numbers"),
            sf.min(sf.struct("accepted_at_ms", "tap_file")).alias("first"),
            sf.min(sf.when(travel.isNotNull(), sf.struct(travel, "accepted_at_ms", "tap_file"))).alias(
                "quickest"
            ),
            sf.count(travel).alias("samples"),
            sf.count_if(verdict == Verdict.LOST).alias("lost"),
            sf.count_if(verdict == Verdict.PENDING).alias("pending"),
            sf.count_if(late & ~sf.col("is_other")).alias("late"),
            sf.collect_list(
                sf.when(leads & sf.col("report").isNotNull() & ~sf.col("is_other"), _report())
            ).alias("reports"),
        )
    )
    runs = by_hour.withColumns({"starts": _edges("numbers", -1), "ends": _edges("numbers", 1)}).drop(
        "numbers"
    )
    hour = sf.struct(*(name for name in runs.columns if name != "client_id"))
    return runs.groupBy("client_id").agg(
        sf.collect_list(hour).alias("hours"), sf.min("quickest.col1").alias("least_ms")
    )


def _report() -> Column:
    return sf.struct(
        "accepted_at_ms",
        sf.col("tap_file").alias("file"),
        "type",
        "source",
        "id",
        "epoch",
        "sequence",
        sf.col("report").alias("text"),
    )


def _edges(numbers: str, step: int) -> Column:
    """Of sorted numbers, those whose neighbour is none (step -1: the number before, 1: the one behind)."""
    return sf.array_except(numbers, sf.transform(numbers, lambda each: each - step))


def judged(hours: DataFrame, scope: Scope) -> DataFrame:
    """One row for each device: `JUDGED`. `hours` are rows of `hours_by_device`."""
    median = hours.agg(sf.percentile("least_ms", 0.5)).collect()[0][0]
    judge = partial(_judge, scope, usual_ms(median))
    return hours.sparkSession.createDataFrame(hours.rdd.mapPartitions(judge), JUDGED, verifySchema=False)


def _judge(scope: Scope, usual: int, rows: Iterator[Row]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield Device(row, scope, usual).judged()


def findings(judged: DataFrame) -> DataFrame:
    """What was found of devices, as `FINDING`."""
    return judged.select(sf.inline("findings"))


def totals(judged: DataFrame) -> Row:
    """The sums over all devices, and how many there are."""
    names = ("lost", "acknowledged_lost", "pending", "explained", "not_stored")
    epochs = judged.select("client_id", sf.explode_outer("epochs").alias("epoch"))
    sums = (sf.coalesce(sf.sum(sf.col("epoch")[name]), sf.lit(0)).alias(name) for name in names)
    return epochs.agg(*sums, sf.count_distinct("client_id").alias("devices")).collect()[0]


def worst(judged: DataFrame, most: int) -> list[Row]:
    """The epochs of devices with most losses first, then those with most gaps."""
    epochs = judged.select(sf.inline("epochs"))
    order = sf.desc("lost"), sf.desc_nulls_last("gaps"), "client_id", "epoch"
    return epochs.orderBy(*order).limit(most).collect()


def hours(judged: DataFrame, clients: Collection[str]) -> list[Row]:
    """The hours of these devices."""
    chosen = judged.where(sf.col("client_id").isin(*clients)).select("client_id", sf.inline("hours"))
    return chosen.orderBy("client_id", "hour").collect()
