"""Figures that CloudWatch reads from the log (EMF): no call, no permission."""

from __future__ import annotations

from typing import Final

from aws_lambda_powertools.metrics import MetricUnit, single_metric

NAMESPACE: Final = "EventPlane"


def count(name: str, **dimensions: str) -> None:
    """One more of `name`, in this service, with `dimensions` of few values each."""
    with single_metric(name=name, unit=MetricUnit.Count, value=1, namespace=NAMESPACE) as metric:
        for dimension, value in dimensions.items():
            metric.add_dimension(name=dimension, value=str(value))
