"""Totals of a job in its log, in CloudWatch's embedded metric format: CloudWatch makes metrics of them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import Any

from glue_jobs.common import system


def add_metrics_option(parser: argparse.ArgumentParser, totals: Collection[str]) -> None:
    """Add the parameter that names those of the job's `totals` that become metrics."""

    def metrics(text: str) -> str:
        namespace, _, names = text.partition(":")
        if not namespace or not {*names.split(",")} <= {*totals}:
            known = ", ".join(sorted(totals))
            raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE:NAME,NAME; give names of {known}")
        return text

    parser.add_argument(
        "--METRICS",
        type=metrics,
        default=None,
        help="a namespace of CloudWatch and totals that become metrics in it: NAMESPACE:NAME,NAME "
        "(default: none)",
    )


def embedded(totals: Mapping[str, int], metrics: str | None) -> dict[str, Any]:
    """Return members for a line of JSON in the log: metrics of now, those that `metrics` names."""
    if metrics is None:
        return {}
    namespace, _, names = metrics.partition(":")
    chosen = {name: totals[name] for name in names.split(",")}
    # Without dimensions: a namespace has the totals of one job.
    made = {"Namespace": namespace, "Dimensions": [[]], "Metrics": [{"Name": name} for name in chosen]}
    # Alarms on silence measure from the end of a run to that of the next.
    now_ms = int(1_000 * system.now().timestamp())
    return {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [made]}, **chosen}
