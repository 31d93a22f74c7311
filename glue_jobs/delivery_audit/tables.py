"""The result's tables, as they are written."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.figures import CONSUMER_VERDICTS, ROUTE_COUNTS
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.verdicts import Verdict


def tables(spark: SparkSession, audit: Audit) -> dict[str, DataFrame | None]:
    """Each table by its name, with the column `date`; None for one without a row."""
    figures = audit.figures
    route, consumer = ("date", "route", "destination"), ("date", "channel")
    ends = ("expected", *map(str, CONSUMER_VERDICTS), "duplicated")
    bad = audit.deliveries.where("within and bad is not null").select("bad.*") if figures.quarantine else None
    return {
        "routes": _table(spark, figures.routes, route, ROUTE_COUNTS),
        "devices": audit.devices.select(sf.inline("days")),
        "consumers": _table(spark, figures.consumers, consumer, ends),
        "findings": audit.findings,
        "quarantine": bad,
    }


def replay_manifest(audit: Audit) -> DataFrame | None:
    """Which events to send again: a row for each event and route that the cloud lost and the tap still has.

    It says where the event is owed, and the tap's file that has its text. `entered_at_ms` is to stand in the
    ledger's record of the replay, with `verdicts.REPLAY` as its reason: so the record belongs to the event's
    own day, and the next audit of it finds the event delivered. An event lost without a route, of which only
    the record is missing, is owed to nobody. What never came to the cloud is not here: only the device could
    send it.
    """
    if not audit.figures.sum("to_replay"):
        return None
    lost = audit.deliveries.where((sf.col("verdict") == Verdict.LOST) & (sf.col("route") != NO_ROUTE))
    return lost.where(sf.col("tap_file").isNotNull()).select(
        "date",
        "source",
        "id",
        "type",
        sf.col("client_id").alias("device"),
        "route",
        "destination",
        "contract_version",
        sf.col("accepted_at_ms").alias("entered_at_ms"),
        sf.col("tap_file").alias("archive_file"),
    )


def _table(
    spark: SparkSession, rows: list[dict[str, Any]], texts: tuple[str, ...], counts: tuple[str, ...]
) -> DataFrame | None:
    if not rows:
        return None
    schema = StructType(
        [
            *(StructField(name, StringType()) for name in texts),
            *(StructField(name, LongType()) for name in counts),
        ]
    )
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)
