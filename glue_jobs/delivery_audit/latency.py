"""How long events took, over each hop, by priority."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.hops import Span

_EVERY_PRIORITY = 3
"""What Spark numbers the rows over all priorities of a rollup; those with a priority have a lesser one."""

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


def latency(deliveries: DataFrame) -> list[dict[str, Any]]:
    """Exact quantiles in milliseconds: `hop, priority, route, samples, p50_ms .. max_ms`.

    A row for each hop, priority and route, and one with `route` null for all routes of a priority.

    A sample is one event on one route, at its first delivery. What starts at the device starts at the event's
    `recordedtime`: its `time` says when something happened, which for replayed data is long ago. Events
    without one give no sample there. Where a device's clock runs ahead of the cloud's, a hop is negative.
    """
    spans = {
        Span.DEVICE_TO_CLOUD: sf.col("accepted_at_ms") - sf.col("recorded_at_ms"),
        Span.CLOUD_TO_INBOX: sf.col("delivered_at_ms") - sf.col("entered_at_ms"),
        Span.DEVICE_TO_INBOX: sf.col("delivered_at_ms") - sf.col("recorded_at_ms"),
        Span.INBOX_TO_CONSUMER: sf.col("consumption.ended_at_ms") - sf.col("consumption.entered_at_ms"),
    }
    order = {str(hop): place for place, hop in enumerate(spans)}
    samples = sf.array(
        *(sf.struct(sf.lit(str(hop)).alias("hop"), ms.alias("ms")) for hop, ms in spans.items())
    )
    taken = deliveries.where(sf.col("delivered") > 0).select("priority", "route", sf.inline(samples))
    # Equal times are counted before they are sorted: a million events have some thousand.
    counted = taken.where(sf.col("ms").isNotNull()).groupBy("hop", "priority", "route", "ms").count()
    measured = counted.rollup("hop", "priority", "route").agg(
        sf.percentile("ms", list(QUANTILES.values()), sf.col("count")).alias("quantiles"),
        sf.sum("count").alias("samples"),
        sf.grouping_id().alias("level"),
    )
    found = sorted(
        measured.where(sf.col("level") < _EVERY_PRIORITY).collect(),
        key=lambda row: (order[row["hop"]], row["priority"] or "", -row["level"], row["route"] or ""),
    )
    return [
        {
            "hop": row["hop"],
            "priority": row["priority"],
            "route": row["route"] if row["level"] == 0 else None,
            "samples": row["samples"],
            **dict(zip(QUANTILES, row["quantiles"], strict=True)),
        }
        for row in found
    ]
