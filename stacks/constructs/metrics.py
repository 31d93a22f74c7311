"""CloudWatch's metrics, and what is computed of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

MINUTE: Final = Duration.minutes(1)
FIVE_MINUTES: Final = Duration.minutes(5)

Figure: TypeAlias = cloudwatch.Metric | cloudwatch.MathExpression


def metric(
    namespace: str, name: str, statistic: str, period: Duration, **dimensions: str
) -> cloudwatch.Metric:
    """Return the metric `name` with these `dimensions`."""
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=period,
    )


def computed(
    expression: str, label: str, metrics: Mapping[str, Figure], period: Duration | None = None
) -> cloudwatch.MathExpression:
    """Return what the `expression` says of `metrics`, which it knows by these names."""
    return cloudwatch.MathExpression(
        expression=expression,
        label=label,
        period=period,
        using_metrics={name: cast("cloudwatch.IMetric", each) for name, each in metrics.items()},
    )
