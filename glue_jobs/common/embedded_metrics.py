"""Totals of a job in its log, in CloudWatch's embedded metric format: CloudWatch makes metrics of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def add_metrics_option(parser: argparse.ArgumentParser) -> None:
    """Add the parameter that names the totals which become metrics."""
    parser.add_argument(
        "--METRICS",
        default=None,
        help="a namespace of CloudWatch and totals that become metrics in it: NAMESPACE:NAME,NAME "
        "(default: none)",
    )


def embedded(totals: Mapping[str, int], metrics: str | None, now: datetime) -> dict[str, Any]:
    """Return members for a line of JSON in the log: those of `totals` that `metrics` names, as metrics."""
    if metrics is None:
        return {}
    namespace, _, names = metrics.partition(":")
    chosen = {name: totals[name] for name in names.split(",")}
    # Without dimensions: a namespace has the totals of one job.
    made = {"Namespace": namespace, "Dimensions": [[]], "Metrics": [{"Name": name} for name in chosen]}
    return {"_aws": {"Timestamp": int(1_000 * now.timestamp()), "CloudWatchMetrics": [made]}, **chosen}
