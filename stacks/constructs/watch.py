"""Watches of AWS's own metrics of the plane's resources: one `Watch` becomes one alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from eventplane.names import CANARY
from eventplane_aws.rules import ALARM_METRICS
from stacks.constructs.metrics import FIVE_MINUTES, MINUTE, Figure, computed, metric
from stacks.constructs.queues import DurableQueue
from stacks.environment import PROJECT, Environment

_T = TypeVar("_T")

_HOUR: Final = Duration.hours(1)
_DAY: Final = Duration.days(1)

_DAILY_H: Final = 25
"""A daily job without a result in so many hours is silent: a run may end an hour later than the one before.
Not one period of a day: CloudWatch's days slide, and a run that ends a minute later would raise an alarm."""

ACKNOWLEDGED_LOST: Final = "acknowledged_lost"
"""The metric of events that IoT Core acknowledged and its rule lost."""

AUDIT_METRICS: Final = ("lost", ACKNOWLEDGED_LOST, "findings", "incomplete", "unattested")
"""Totals of the delivery audit that are metrics, called as in its report; all of them should be 0."""

AUDIT: Final = "audit"
AUDIT_TODAY: Final = "audit-today"
"""The audit of yesterday, and the one of the day so far. Their metrics are apart: the hourly verdicts on
today would hide that nobody has audited yesterday."""

COMPACTION_METRICS: Final = ("failed",)
"""Totals of the compaction that are metrics; they should be 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """An alarm called `name` while `metric` is above `threshold` for `periods` of its periods.

    `about` names what is watched, in front of the description (`stacks.alarm_texts`). One that `is_page`
    reaches people at any hour: alarms of people are late, or may be lost. The others can wait for the next
    working day. Missing data counts as OK unless `is_silence_bad`; one that `is_least` is on while the metric
    is below `threshold`.

    Where silence is bad, missing data is filled in (`judged`). With `TreatMissingData` alone CloudWatch would
    look at more periods than asked, so that an older value kept the alarm quiet (Amazon CloudWatch guide,
    "Configuring how CloudWatch alarms treat missing data").
    """

    name: str
    metric: Figure
    is_page: bool = False
    threshold: float = 0
    periods: int = 1
    is_silence_bad: bool = False
    is_least: bool = False
    about: str = ""

    @property
    def judged(self) -> Figure:
        """The figure that the alarm compares with the threshold."""
        if not self.is_silence_bad:
            return self.metric
        breaching = self.threshold + (-1 if self.is_least else 1)
        return computed(f"FILL(m, {breaching:g})", self.name, {"m": self.metric}, self.metric.period)


def of_queues(
    queues: Sequence[DurableQueue], environment: Environment, *, has_canary: bool
) -> Iterator[Watch]:
    """Yield the watches of the queues of `environment`: nobody reads one, and what nobody could handle.

    Urgent ones have alarms of their own. The outboxes that one router reads share alarms on their age. What
    lies in the dead-letter queues of the others is one figure of the canary, and so is their age where the
    alarms are not detailed (stacks/constructs/figure_watches.py). Without a canary each queue has its alarms.
    """
    is_detailed = environment.alarms.is_detailed or not has_canary
    canary = environment.resource_name(f"{CANARY}-inbox")
    outboxes = []
    for each in queues:
        if each.name == canary:
            continue  # its reader's silence pages
        is_alone = each.is_urgent or each.is_ordered or environment.is_emulated
        if is_detailed and not is_alone and each.name.endswith("-outbox"):
            outboxes.append(each)
        elif is_detailed or each.is_urgent or each.is_ordered:
            yield _of_age(each.name, [each])
        if is_detailed and (each.is_urgent or not has_canary):
            # Not NumberOfMessagesSent, which a redrive that fails again does not count (Amazon SQS guide).
            yield Watch(
                name=f"{each.dead_letters_name}-visible",
                metric=queue_metric(
                    each.dead_letters_name, "ApproximateNumberOfMessagesVisible", "Maximum", MINUTE
                ),
                is_page=each.is_urgent,
            )
    for suffix, some in _in_alarms(outboxes):
        yield _of_age(environment.resource_name(f"outboxes{suffix}"), some)


def _of_age(name: str, queues: Sequence[DurableQueue]) -> Watch:
    """Of the oldest message in `queues`, which are alike."""
    first = queues[0]
    ages = [queue_metric(each.name, "ApproximateAgeOfOldestMessage", "Maximum", MINUTE) for each in queues]
    return Watch(
        name=f"{name}-age",
        metric=_combined("MAX", ages),
        is_page=first.is_urgent,
        threshold=first.age_alarm.to_seconds(),
        periods=1 if first.is_ordered else 3,
    )


def of_functions(functions: Mapping[str, Sequence[str]], environment: Environment) -> Iterator[Watch]:
    """Yield the watches of `functions`, by the service whose code they run: crashes, loops, and executions
    that the account has no room for.
    """
    # The emulator's alarms read one metric.
    if environment.alarms.is_detailed and not environment.is_emulated:
        for service, names in functions.items():
            for suffix, some in _in_alarms(names):
                yield Watch(
                    name=environment.resource_name(f"{service.replace('_', '-')}-errors{suffix}"),
                    metric=_combined("SUM", [function_metric(each, "Errors") for each in some]),
                    about=f"Of {', '.join(some)}. ",
                )
    else:
        yield Watch(
            name=environment.resource_name("function-errors"),
            metric=function_metric(None, "Errors"),
        )
    # Concurrency is the account's, and so is this metric: throttles of one function are throttles of all.
    yield Watch(
        name=environment.resource_name("function-throttles"),
        metric=function_metric(None, "Throttles"),
        periods=3,
    )
    yield Watch(
        name=environment.resource_name("function-recursions"),
        metric=function_metric(None, "RecursiveInvocationsDropped"),
    )


def of_schedule(name: str) -> Watch:
    """Return the watch of the function `name`, which is called every minute."""
    return Watch(
        name=f"{name}-calls",
        metric=function_metric(name, "Invocations"),
        threshold=1,
        periods=3,
        is_silence_bad=True,
        is_least=True,
    )


def of_rule(name: str, environment: Environment, *, is_ingest: bool) -> Iterator[Watch]:
    """Yield the watches of the IoT rule `name`; what fails in an action comes to a queue that is watched.

    Each metric counts messages that are lost, so those of the ingest rules page. What the other rules lose is
    found again by the reconcilers. A rule that is gone or wrong loses everything: the canary, and gaps in the
    audit, show that as well.
    """
    is_detailed = environment.alarms.is_detailed
    if not (is_ingest or is_detailed):
        return
    # Where the alarms are not detailed, what only a wrong deployment raises is left out.
    wrong = ("RuleNotFound", "ParseError") if is_detailed and not environment.is_emulated else ()
    yield Watch(
        name=f"{name}-lost",
        metric=_combined("SUM", [rule_metric(name, each) for each in ("RuleMessageThrottled", *wrong)]),
        is_page=is_ingest,
    )
    # The emulator has no alarms on queries.
    if not environment.is_emulated:
        yield Watch(
            name=f"{name}-ErrorActionFailure",
            metric=_error_action_failures(name),
            is_page=is_ingest,
        )


def of_ingest_errors(queue_name: str) -> Watch:
    """An ingest rule's action failed: the error action sent the payload to the queue called `queue_name`."""
    return Watch(
        name=f"{queue_name}-received",
        metric=queue_metric(queue_name, "NumberOfMessagesSent", "Sum", FIVE_MINUTES),
    )


_AUDIT_TICKETS: Final = ("findings", "incomplete")


def of_audit(environment: Environment) -> Iterator[Watch]:
    """Yield those of the audit; no verdict on yesterday is bad where it should start by itself."""
    if environment.audit.schedule is not None:
        yield _of_silent_job(environment, AUDIT, audit_namespace(environment, AUDIT), AUDIT_METRICS[0])
    for audit in audits(environment):
        for name in _AUDIT_TICKETS:
            yield Watch(
                name=environment.resource_name(f"{audit}-{name}"),
                metric=audit_metric(environment, audit, name),
            )
        # No device sends it again, and no replay can: the tap has no text of it.
        yield Watch(
            name=environment.resource_name(f"{audit}-{ACKNOWLEDGED_LOST.replace('_', '-')}"),
            metric=audit_metric(environment, audit, ACKNOWLEDGED_LOST),
            is_page=True,
        )


def of_compaction(environment: Environment) -> Iterator[Watch]:
    """Yield those of the compaction: hours that failed; silence is bad where it should start by itself."""
    namespace = compaction_namespace(environment)
    for name in COMPACTION_METRICS:
        if environment.compaction.schedule is not None:
            yield _of_silent_job(environment, "compaction", namespace, name)
        yield Watch(
            name=environment.resource_name(f"compaction-{name}"),
            metric=metric(namespace, name, "Maximum", _DAY),
        )


def _of_silent_job(environment: Environment, job: str, namespace: str, total: str) -> Watch:
    """Of a job that should write the metric `total` at least once a day, whatever its value."""
    return Watch(
        name=environment.resource_name(f"{job}-missing"),
        metric=metric(namespace, total, "SampleCount", _HOUR),
        threshold=1,
        periods=_DAILY_H,
        is_silence_bad=True,
        is_least=True,
    )


def _in_alarms(watched: Sequence[_T]) -> Iterator[tuple[str, Sequence[_T]]]:
    """Yield as many of `watched` as one alarm takes, each time with what an alarm's name ends with."""
    for first in range(0, len(watched), ALARM_METRICS.most):
        yield f"-{first}" if first else "", watched[first : first + ALARM_METRICS.most]


def _combined(function: str, metrics: Sequence[cloudwatch.Metric]) -> Figure:
    """Return the `function`, `MAX` or `SUM`, of those of `metrics` that have data. One needs none."""
    if len(metrics) == 1:
        return metrics[0]
    named = {f"m{at}": each for at, each in enumerate(metrics)}
    return computed(f"{function}(METRICS())", function.lower(), named, metrics[0].period)


def queue_metric(name: str, kind: str, statistic: str, period: Duration) -> cloudwatch.Metric:
    """A metric of the queue called `name`."""
    return metric("AWS/SQS", kind, statistic, period, QueueName=name)


def function_metric(name: str | None, kind: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """A metric of the function called `name`, over five minutes; None: of all functions of the account."""
    dimensions = {} if name is None else {"FunctionName": name}
    return metric("AWS/Lambda", kind, statistic, FIVE_MINUTES, **dimensions)


def rule_metric(name: str, kind: str) -> cloudwatch.Metric:
    """A metric of the IoT rule called `name`, over five minutes."""
    return metric("AWS/IoT", kind, "Sum", FIVE_MINUTES, RuleName=name)


def _error_action_failures(rule: str) -> cloudwatch.MathExpression:
    """How often the error action of a rule failed, over five minutes.

    A query, because the metric has a second dimension, whose values are not documented.
    """
    query = f"SELECT SUM(ErrorActionFailure) FROM \"AWS/IoT\" WHERE RuleName = '{rule}'"  # noqa: S608 - no SQL
    return computed(query, "ErrorActionFailure", {}, FIVE_MINUTES)


def audits(environment: Environment) -> Sequence[str]:
    """Return the audits of `environment`."""
    return (AUDIT,) if environment.audit_today is None else (AUDIT, AUDIT_TODAY)


def audit_namespace(environment: Environment, audit: str) -> str:
    """Return the namespace of the metrics of `audit`."""
    return f"{PROJECT}/{environment.name}/{audit}"


def audit_metric(environment: Environment, audit: str, total: str) -> cloudwatch.Metric:
    """One of `AUDIT_METRICS`, of a day."""
    return metric(audit_namespace(environment, audit), total, "Maximum", _DAY)


def compaction_namespace(environment: Environment) -> str:
    """Return the namespace of the compaction's metrics."""
    return f"{PROJECT}/{environment.name}/compaction"
