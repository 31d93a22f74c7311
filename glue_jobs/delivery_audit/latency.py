"""How long events took, over each hop, by priority."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.hops import Span

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


def latency(deliveries: DataFrame) -> list[dict[str, Any]]:
    """Exact quantiles in milliseconds for each hop and priority: `hop, priority, samples, p50_ms .. max_ms`.

    A sample is one event on one route, at its first delivery. What starts at the device starts at the event's
    `recordedtime`: its `time` says when something happened, which for replayed data is long ago. Events
    without one give no sample there. Where a device's clock runs ahead of the cloud's, a hop is negative.
    """
    spans = {
        Span.DEVICE_TO_CLOUD: sf.col("accepted_at_ms") - sf.col("recorded_at_ms"),
        Span.CLOUD_TO_INBOX: sf.col("delivered_at_ms") - sf.col("entered_at_ms"),
        Span.DEVICE_TO_INBOX: sf.col("delivered_at_ms") - sf.col("recorded_at_ms"),
    }
    columns = []
    for hop, span in spans.items():
        columns += [
            sf.percentile(span, list(QUANTILES.values())).alias(f"{hop}_quantiles"),
            sf.count(span).alias(f"{hop}_samples"),
        ]
    delivered = deliveries.where(sf.col("delivered") > 0)
    measured = delivered.groupBy("priority").agg(*columns).orderBy("priority").collect()
    return [
        {
            "hop": str(hop),
            "priority": row["priority"],
            "samples": row[f"{hop}_samples"],
            **dict(zip(QUANTILES, row[f"{hop}_quantiles"], strict=True)),
        }
        for hop in spans
        for row in measured
        if row[f"{hop}_samples"]
    ]
