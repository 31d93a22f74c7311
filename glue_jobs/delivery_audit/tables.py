"""The result's tables, as they are written."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from eventplane.archive_layout import (
    AUDIT,
    AUDIT_CONSUMERS_FOLDER,
    AUDIT_DEVICES_FOLDER,
    AUDIT_QUARANTINE_FOLDER,
    AUDIT_ROUTES_FOLDER,
    FINDINGS_FOLDER,
    Column,
    Folder,
)
from glue_jobs.common.archive import struct_of
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.verdicts import Verdict


def tables(spark: SparkSession, audit: Audit) -> dict[str, DataFrame | None]:
    """Each table of the layout by its name; None for one without a row."""
    figures, unnumbered = audit.figures, sf.lit(None).cast("bigint").alias("line")
    bad = audit.deliveries.where("within and bad is not null").select("bad.*", unnumbered)
    made = {
        AUDIT_ROUTES_FOLDER: _table(spark, figures.routes, AUDIT_ROUTES_FOLDER),
        AUDIT_DEVICES_FOLDER: audit.devices.select(sf.inline("days")),
        AUDIT_CONSUMERS_FOLDER: _table(spark, figures.consumers, AUDIT_CONSUMERS_FOLDER),
        FINDINGS_FOLDER: audit.findings,
        AUDIT_QUARANTINE_FOLDER: bad if figures.quarantine else None,
    }
    return {
        folder.name.removeprefix(f"{AUDIT}/"): table and table.select(_columns(folder).names)
        for folder, table in made.items()
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
        "sender",
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


def _table(spark: SparkSession, rows: list[dict[str, Any]], folder: Folder) -> DataFrame | None:
    schema = _columns(folder)
    values = [tuple(row[name] for name in schema.names) for row in rows]
    return spark.createDataFrame(values, schema) if values else None


def _columns(folder: Folder) -> StructType:
    return struct_of((*map(Column, folder.partitions), *folder.columns))
