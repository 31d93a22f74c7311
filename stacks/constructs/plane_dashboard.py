"""One page that answers: does everything flow, how old is what waits, what failed, what says the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.config import Environment
from stacks.constructs.durable_queue import DurableQueue
from stacks.constructs.watch import AUDIT_METRICS, audit_metric, function_metric, queue_metric, rule_metric

_HALF: Final = 12
_MINUTE: Final = Duration.minutes(1)


class PlaneDashboard(Construct):
    """The dashboard of an environment: `alarms`, and graphs of what they watch."""

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
    ) -> None:
        super().__init__(scope, id)
        names = [queue.name for queue in queues]
        dead = [queue.dead_letters_name for queue in queues]
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=environment.resource_name("plane"),
            widgets=[
                [
                    _widget(
                        cloudwatch.AlarmStatusWidget(
                            title="Alarms",
                            alarms=[cast("cloudwatch.IAlarm", alarm) for alarm in alarms],
                            width=2 * _HALF,
                        )
                    )
                ],
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
                    _graph("Audit", (audit_metric(environment, each) for each in AUDIT_METRICS)),
                ],
            ],
        )


def _of(functions: Iterable[str], metric: str, statistic: str = "Sum") -> Iterable[cloudwatch.Metric]:
    return (function_metric(each, metric, statistic) for each in functions)


def _graph(title: str, metrics: Iterable[cloudwatch.Metric]) -> cloudwatch.IWidget:
    left = [cast("cloudwatch.IMetric", each) for each in metrics]
    return _widget(cloudwatch.GraphWidget(title=title, left=left, width=_HALF))


def _widget(widget: object) -> cloudwatch.IWidget:
    return cast("cloudwatch.IWidget", widget)
