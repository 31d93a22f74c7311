"""One page that answers: does everything flow, how late, what waits, what failed, what says the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.constructs.durable_queue import DurableQueue
from stacks.constructs.figure_watches import figure
from stacks.constructs.watch import (
    AUDIT_METRICS,
    audit_metric,
    audits,
    function_metric,
    queue_metric,
    rule_metric,
)
from stacks.environment import Environment

_HALF: Final = 12
_MINUTE: Final = Duration.minutes(1)

_MOST_ALARMS: Final = 100
"""CloudWatch refuses a dashboard with more of them in one widget."""

# Figures of the functions, by the names in lambdas/common/metrics.py; a test compares them.
_DELAYS: Final = ("UrgentDeliveryDelay", "DeliveryDelay")
_OUTCOMES: Final = ("Delivered", "DeadLettered", "Expired", "Dropped", "Unrouted", "NotWanted", "Retried")
_HANDOVERS: Final = ("Delivered", "DeadLettered", "Expired", "Dropped", "Retried")
_DOWN: Final = ("Transmitted", "Acknowledged", "Rejected", "Parked")
_SPANS: Final = ("Spans", "SpansLost")


class PlaneDashboard(Construct):
    """The dashboard of an environment: `alarms`, graphs of what they watch, and of the functions' figures.

    `routers`, `posters` and `downlinks` are those of the `functions` that lead events up, to endpoints, down.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        alarms: Sequence[cloudwatch.Alarm],
        queues: Sequence[DurableQueue],
        functions: Sequence[str],
        rules: Sequence[str],
        routers: Sequence[str],
        posters: Sequence[str],
        downlinks: Sequence[str],
    ) -> None:
        super().__init__(scope, id)
        names = [queue.name for queue in queues]
        dead = [queue.dead_letters_name for queue in queues]
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=environment.resource_name("plane"),
            widgets=[
                *([each] for each in _states(alarms)),
                [
                    _graph("Publishes by rule", (rule_metric(each, "TopicMatch") for each in rules)),
                    _graph(
                        "Age of the oldest message, seconds",
                        (
                            queue_metric(each, "ApproximateAgeOfOldestMessage", "Maximum", _MINUTE)
                            for each in names
                        ),
                    ),
                ],
                [
                    _graph("Acceptance to delivery at worst, milliseconds", _delays(routers)),
                    _graph("What became of events", (_total(routers, each) for each in _OUTCOMES)),
                ],
                [
                    _graph(
                        "Messages that wait",
                        (
                            queue_metric(each, "ApproximateNumberOfMessagesVisible", "Maximum", _MINUTE)
                            for each in names
                        ),
                    ),
                    _graph(
                        "Messages in dead-letter queues",
                        (
                            queue_metric(each, "ApproximateNumberOfMessagesVisible", "Maximum", _MINUTE)
                            for each in dead
                        ),
                    ),
                ],
                [
                    _graph("Duration p99, milliseconds", _of(functions, "Duration", "p99")),
                    _graph("Errors", _of(functions, "Errors")),
                ],
                [
                    _graph("Executions at once", _of(functions, "ConcurrentExecutions", "Maximum")),
                    _graph("Audit", _verdicts(environment)),
                ],
                [
                    _graph("Down to devices", (_total(downlinks, each) for each in _DOWN)),
                    _graph("Spans for the collector", (_total(routers, each) for each in _SPANS)),
                ],
                [_graph("What endpoints did with events", (_total(posters, each) for each in _HANDOVERS))],
            ],
        )


def _states(alarms: Sequence[cloudwatch.Alarm]) -> Iterable[cloudwatch.IWidget]:
    for first in range(0, len(alarms), _MOST_ALARMS):
        some = alarms[first : first + _MOST_ALARMS]
        yield _widget(
            cloudwatch.AlarmStatusWidget(
                title=f"Alarms {first + 1} to {first + len(some)}",
                alarms=[cast("cloudwatch.IAlarm", alarm) for alarm in some],
                width=2 * _HALF,
            )
        )


def _verdicts(environment: Environment) -> Iterable[cloudwatch.Metric]:
    return (audit_metric(environment, audit, each) for audit in audits(environment) for each in AUDIT_METRICS)


def _delays(routers: Iterable[str]) -> Iterable[cloudwatch.Metric]:
    return (figure(each, delay, statistic="Maximum") for each in routers for delay in _DELAYS)


def _total(functions: Sequence[str], name: str) -> cloudwatch.MathExpression:
    """A figure of all `functions` together."""
    # Ids are the graph's, not the expression's.
    parts = {
        f"m{name}{at}": cast("cloudwatch.IMetric", figure(each, name)) for at, each in enumerate(functions)
    }
    expression = f"SUM([{', '.join(parts)}])"
    return cloudwatch.MathExpression(expression=expression, using_metrics=parts, label=name)


def _of(functions: Iterable[str], metric: str, statistic: str = "Sum") -> Iterable[cloudwatch.Metric]:
    return (function_metric(each, metric, statistic) for each in functions)


def _graph(
    title: str, metrics: Iterable[cloudwatch.Metric | cloudwatch.MathExpression]
) -> cloudwatch.IWidget:
    left = [cast("cloudwatch.IMetric", each) for each in metrics]
    return _widget(cloudwatch.GraphWidget(title=title, left=left, width=_HALF))


def _widget(widget: object) -> cloudwatch.IWidget:
    return cast("cloudwatch.IWidget", widget)
