"""Which events to send again: what the routers' side lost and the tap still has."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.route_filters import NO_ROUTE


def replay_manifest(deliveries: DataFrame) -> DataFrame:
    """One row an event and route: its names, where it is owed, and the tap's file that has its text.

    `entered_at_ms` is to stand in the ledger's record of the replay, with `deliveries.REPLAY` as its reason:
    so the record belongs to the event's own day, and the next audit of it finds the event delivered. An event
    lost without a route, of which only the record is missing, is owed to nobody. What never came to the cloud
    is not here: only the device could send it.
    """
    lost = deliveries.where((sf.col("verdict") == Verdict.LOST) & (sf.col("route") != NO_ROUTE))
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
