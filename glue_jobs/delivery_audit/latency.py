"""How long events took, over each hop, by priority. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import floor
from typing import Any, Final

from glue_jobs.delivery_audit.event_group import LatencyKey
from glue_jobs.delivery_audit.findings import Span

QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


def latency(samples: Mapping[LatencyKey, int]) -> list[dict[str, Any]]:
    """Exact quantiles in milliseconds: `hop, priority, route, samples, p50_ms .. max_ms`.

    A row for each hop, priority and route, and one with `route` null for all routes of a priority.

    A sample is one event on one route, at its first delivery. What starts at the device starts at the event's
    `recordedtime`: its `time` says when something happened, which for replayed data is long ago. Events
    without one give no sample there. Where a device's clock runs ahead of the cloud's, a hop is negative.
    """
    counted: defaultdict[tuple[str, str | None, str | None], Counter[int]] = defaultdict(Counter)
    for key, count in samples.items():
        counted[key.span, key.priority, key.route][key.ms] += count
        counted[key.span, key.priority, None][key.ms] += count
    order = {str(span): place for place, span in enumerate(Span)}
    found = sorted(counted, key=lambda key: (order[key[0]], key[1] or "", key[2] is not None, key[2] or ""))
    return [
        {"hop": span, "priority": priority, "route": route, **_quantiles(counted[span, priority, route])}
        for span, priority, route in found
    ]


def _quantiles(counts: Counter[int]) -> dict[str, Any]:
    """Between two samples a quantile is interpolated, as Spark's `percentile` does."""
    samples, passed = counts.total(), 0
    places = {name: (samples - 1) * share for name, share in QUANTILES.items()}
    between = {name: (floor(place), min(floor(place) + 1, samples - 1)) for name, place in places.items()}
    ranks, at = sorted({rank for pair in between.values() for rank in pair}), dict[int, int]()
    for ms in sorted(counts):
        passed += counts[ms]
        while ranks and ranks[0] < passed:
            at[ranks.pop(0)] = ms
    wanted = {
        name: at[low] + (at[high] - at[low]) * (places[name] - low) for name, (low, high) in between.items()
    }
    return {"samples": samples, **wanted}
