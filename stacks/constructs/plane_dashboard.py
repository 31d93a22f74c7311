"""One page: whether the objectives are met, what waits, what failed, what the audit found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from eventplane.names import CANARY
from eventplane_aws.rules import WIDGET_ALARMS
from stacks.constructs.figure_watches import (
    SLO_AVAILABILITY,
    SLO_DELAY_MS,
    canary_missed,
    figure,
)
from stacks.constructs.metrics import MINUTE, Figure, computed
from stacks.constructs.queues import DurableQueue
from stacks.constructs.routers import URGENT_ROUTER
from stacks.constructs.watch import (
    AUDIT_METRICS,
    audit_metric,
    audits,
    function_metric,
    queue_metric,
    rule_metric,
)
from stacks.environment import Environment
from stacks.names import HTTP_SINK, ROUTER, URGENT_HTTP_SINK
from stacks.plane_stack import environment_of

_HALF: Final = 12

# Figures of the functions, by the names in lambdas/common/metrics.py; a test compares them.
_OUTCOMES: Final = ("Delivered", "DeadLettered", "Expired", "Dropped", "Unrouted", "NotWanted", "Retried")
_HANDOVERS: Final = ("Delivered", "DeadLettered", "Expired", "Dropped", "Retried")
_DOWN: Final = ("Transmitted", "Acknowledged", "Rejected", "Parked")
_FLEET: Final = ("Connected", "Lost", "Quiet")
_SPANS: Final = ("Spans", "SpansLost")

# The services that lead events up, to endpoints, and down.
_ROUTERS: Final = (ROUTER, URGENT_ROUTER)
_POSTERS: Final = (HTTP_SINK, URGENT_HTTP_SINK)
_DOWNLINKS: Final = ("downlink",)
_PRESENCE: Final = "presence"


class PlaneDashboard(Construct):
    """The dashboard of an environment: its objectives, `alarms`, and graphs of what they watch.

    `services` are those whose functions write metrics. Queues and functions have a line each where the alarms
    are detailed; otherwise the dashboard stays within the 50 metrics that CloudWatch shows for nothing.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        alarms: Sequence[cloudwatch.Alarm],
        queues: Sequence[DurableQueue],
        functions: Sequence[str],
        rules: Sequence[str],
        services: Collection[str],
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        chosen = partial(_total, environment, services)
        rows = [
            *([each] for each in _states(alarms)),
            _objectives(environment, services),
            [
                _graph("What became of events", (chosen(_ROUTERS, each) for each in _OUTCOMES)),
                _graph("Audit", _verdicts(environment)),
            ],
            [
                _graph("Down to devices", (chosen(_DOWNLINKS, each) for each in _DOWN)),
                _graph("What endpoints did with events", (chosen(_POSTERS, each) for each in _HANDOVERS)),
            ],
        ]
        if environment.alarms.is_detailed:
            counts = (figure(environment, _PRESENCE, each, statistic="Maximum") for each in _FLEET)
            rows += [[_graph("Devices", counts)], *_details(queues, functions, rules)]
            rows.append([_graph("Spans for the collector", (chosen(_ROUTERS, each) for each in _SPANS))])
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=environment.resource_name("plane"), widgets=rows
        )


def _objectives(environment: Environment, services: Collection[str]) -> list[cloudwatch.IWidget]:
    """The service level objectives (docs/how-to/operations.md), each with its limit."""
    delays = [
        figure(environment, each, "UrgentDeliveryDelay", statistic="p99")
        for each in _ROUTERS
        if each in services
    ]
    if CANARY in services:
        delays.append(figure(environment, CANARY, "CanaryDelay", statistic="p99"))
    graphs = [_graph("Alarm to inbox p99, milliseconds", delays, SLO_DELAY_MS)]
    if CANARY in services:
        availability = _availability(environment)
        graphs.append(_graph("The canary's alarms in time, percent", [availability], SLO_AVAILABILITY))
    return graphs


def _availability(environment: Environment) -> cloudwatch.MathExpression:
    """Percentage of the canary's alarms that reached their inbox in time, of those that should have."""
    every_min = environment.alarms.canary_every_min
    minutes = max(60, every_min)
    parts = {"sent": canary_missed(environment, "SampleCount"), "missed": canary_missed(environment, "Sum")}
    share = f"100 * (FILL(sent, 0) - FILL(missed, 0)) / {minutes // every_min}"
    # A schedule's jitter can put one more into a period.
    return computed(f"IF({share} > 100, 100, {share})", "in time", parts, Duration.minutes(minutes))


def _details(
    queues: Sequence[DurableQueue], functions: Sequence[str], rules: Sequence[str]
) -> list[list[cloudwatch.IWidget]]:
    def of_queues(names: Iterable[str], metric: str) -> Iterable[cloudwatch.Metric]:
        return (queue_metric(each, metric, "Maximum", MINUTE) for each in names)

    names = [queue.name for queue in queues]
    dead = [queue.dead_letters_name for queue in queues]
    visible = "ApproximateNumberOfMessagesVisible"
    return [
        [
            _graph("Publishes by rule", (rule_metric(each, "TopicMatch") for each in rules)),
            _graph("Age of the oldest message, seconds", of_queues(names, "ApproximateAgeOfOldestMessage")),
        ],
        [
            _graph("Messages that wait", of_queues(names, visible)),
            _graph("Messages in dead-letter queues", of_queues(dead, visible)),
        ],
        [
            _graph("Duration p99, milliseconds", _of(functions, "Duration", "p99")),
            _graph("Errors", _of(functions, "Errors")),
        ],
        [_graph("Executions at once", _of(functions, "ConcurrentExecutions", "Maximum"))],
    ]


def _states(alarms: Sequence[cloudwatch.Alarm]) -> Iterable[cloudwatch.IWidget]:
    for first in range(0, len(alarms), WIDGET_ALARMS.most):
        some = alarms[first : first + WIDGET_ALARMS.most]
        yield _widget(
            cloudwatch.AlarmStatusWidget(
                title=f"Alarms {first + 1} to {first + len(some)}",
                alarms=[cast("cloudwatch.IAlarm", alarm) for alarm in some],
                width=2 * _HALF,
            )
        )


def _verdicts(environment: Environment) -> Iterable[cloudwatch.Metric]:
    return (audit_metric(environment, audit, each) for audit in audits(environment) for each in AUDIT_METRICS)


def _total(
    environment: Environment, services: Collection[str], of: Sequence[str], name: str
) -> cloudwatch.MathExpression:
    """A metric of those `services` together that are `of` one kind."""
    # Ids are the graph's, not the expression's.
    parts = {
        f"m{name}{at}": figure(environment, each, name)
        for at, each in enumerate(each for each in of if each in services)
    }
    return computed(f"SUM([{', '.join(parts)}])", name, parts)


def _of(functions: Iterable[str], metric: str, statistic: str = "Sum") -> Iterable[cloudwatch.Metric]:
    return (function_metric(each, metric, statistic) for each in functions)


def _graph(title: str, metrics: Iterable[Figure], objective: float | None = None) -> cloudwatch.IWidget:
    left = [cast("cloudwatch.IMetric", each) for each in metrics]
    lines = [cloudwatch.HorizontalAnnotation(value=objective, label="objective")] if objective else None
    return _widget(cloudwatch.GraphWidget(title=title, left=left, left_annotations=lines, width=_HALF))


def _widget(widget: object) -> cloudwatch.IWidget:
    return cast("cloudwatch.IWidget", widget)
