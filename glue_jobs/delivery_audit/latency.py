"""How long events took, over each hop, by priority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.hops import Span

_EVERYTHING = 3
"""What Spark numbers the row over all priorities and routes of a rollup by two columns."""

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


def latency(deliveries: DataFrame, consumptions: DataFrame) -> list[dict[str, Any]]:
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
    }
    delivered = deliveries.where(sf.col("delivered") > 0)
    last = {Span.INBOX_TO_CONSUMER: sf.col("ended_at_ms") - sf.col("entered_at_ms")}
    return _measured(delivered, spans) + _measured(consumptions, last)


def _measured(rows: DataFrame, spans: Mapping[Span, Column]) -> list[dict[str, Any]]:
    columns = []
    for hop, span in spans.items():
        columns += [
            sf.percentile(span, list(QUANTILES.values())).alias(f"{hop}_quantiles"),
            sf.count(span).alias(f"{hop}_samples"),
        ]
    measured = rows.rollup("priority", "route").agg(*columns, sf.grouping_id().alias("level"))
    # The innermost level has routes, the next all of a priority, the last everything.
    wanted = measured.where(sf.col("level") < _EVERYTHING)
    found = wanted.orderBy("priority", sf.desc("level"), "route").collect()
    return [
        {
            "hop": str(hop),
            "priority": row["priority"],
            "route": row["route"] if row["level"] == 0 else None,
            "samples": row[f"{hop}_samples"],
            **dict(zip(QUANTILES, row[f"{hop}_quantiles"], strict=True)),
        }
        for hop in spans
        for row in found
        if row[f"{hop}_samples"]
    ]
