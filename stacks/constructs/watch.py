"""What AWS's own metrics say of the plane's resources: one `Watch` becomes one alarm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from eventplane.names import CANARY
from stacks.constructs.queues import DurableQueue
from stacks.environment import PROJECT, Environment

_MINUTE: Final = Duration.minutes(1)
_FIVE_MINUTES: Final = Duration.minutes(5)
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

    `remedy` is the alarm's description. One that `is_page` tells somebody at any hour: alarms of people are
    late, or may be lost. The others can wait for the next working day. Missing data counts as OK unless
    `is_silence_bad`; one that `is_least` is on while the metric is below `threshold`.

    Where silence is bad, missing data is filled in (`judged`). With `TreatMissingData` alone CloudWatch would
    look at more periods than asked, so that an older value kept the alarm quiet (Amazon CloudWatch guide,
    "Configuring how CloudWatch alarms treat missing data").
    """

    name: str
    metric: cloudwatch.Metric | cloudwatch.MathExpression
    remedy: str
    is_page: bool = False
    threshold: float = 0
    periods: int = 1
    is_silence_bad: bool = False
    is_least: bool = False

    @property
    def judged(self) -> cloudwatch.Metric | cloudwatch.MathExpression:
        """What the alarm compares with the threshold."""
        if not self.is_silence_bad:
            return self.metric
        breaching = self.threshold + (-1 if self.is_least else 1)
        return cloudwatch.MathExpression(
            expression=f"FILL(m, {breaching:g})",
            using_metrics={"m": cast("cloudwatch.IMetric", self.metric)},
            period=self.metric.period,
            label=self.name,
        )


def of_queues(
    queues: Sequence[DurableQueue], environment: Environment, *, has_canary: bool
) -> Iterator[Watch]:
    """Of the queues of `environment`: nobody reads one, and what nobody could handle.

    Urgent ones have alarms of their own. What lies in the dead-letter queues of the others is one figure of
    the canary, and so is their age where the alarms are not detailed (stacks/constructs/figure_watches.py).
    Without a canary each queue has its alarms.
    """
    is_detailed = environment.alarms.is_detailed or not has_canary
    canary = environment.resource_name(f"{CANARY}-inbox")
    for each in queues:
        if each.name == canary:
            continue  # its reader's silence pages
        if each.is_urgent or each.is_ordered or is_detailed:
            yield Watch(
                name=f"{each.name}-age",
                metric=queue_metric(each.name, "ApproximateAgeOfOldestMessage", "Maximum", _MINUTE),
                is_page=each.is_urgent,
                threshold=each.age_alarm.to_seconds(),
                periods=1 if each.is_ordered else 3,
                remedy="Its reader is down, too slow, or fails: see its log, and its errors and throttles."
                + each.is_ordered * " What follows in the order waits for the event that fails.",
            )
        if is_detailed and (each.is_urgent or not has_canary):
            # Not NumberOfMessagesSent, which a redrive that fails again does not count (Amazon SQS guide).
            yield Watch(
                name=f"{each.dead_letters_name}-visible",
                metric=queue_metric(
                    each.dead_letters_name, "ApproximateNumberOfMessagesVisible", "Maximum", _MINUTE
                ),
                is_page=each.is_urgent,
                remedy="Messages failed time and again. Find the cause, then redrive: they are kept for 14 "
                "days from when they were first sent.",
            )


def of_functions(names: Sequence[str], environment: Environment) -> Iterator[Watch]:
    """Of the functions called `names`: crashes, loops, and executions that the account has no room for."""
    crashed = "crashed or ran out of time; whole batches come again. Its log has the error."
    if environment.alarms.is_detailed:
        for name in names:
            yield Watch(name=f"{name}-errors", metric=function_metric(name, "Errors"), remedy=f"It {crashed}")
    else:
        yield Watch(
            name=environment.resource_name("function-errors"),
            metric=function_metric(None, "Errors"),
            remedy=f"A function of the account {crashed} See the metric `Errors` by function.",
        )
    # Concurrency is the account's, and so is this metric: throttles of one function are throttles of all.
    yield Watch(
        name=environment.resource_name("function-throttles"),
        metric=function_metric(None, "Throttles"),
        periods=3,
        remedy="The account's concurrency is used up; throttled messages spend receives. Raise the quota.",
    )
    yield Watch(
        name=environment.resource_name("function-recursions"),
        metric=function_metric(None, "RecursiveInvocationsDropped"),
        remedy="AWS Lambda ended a chain of messages in which a function was called 16 times: functions that "
        "answer each other without end; see the metric by function, and the dead-letter queues.",
    )


def of_schedule(name: str) -> Watch:
    """Of the function called `name`, which is called every minute."""
    return Watch(
        name=f"{name}-calls",
        metric=function_metric(name, "Invocations"),
        threshold=1,
        periods=3,
        is_silence_bad=True,
        is_least=True,
        remedy="It should be called every minute and is not: see its schedules and the role that they have.",
    )


def of_rule(name: str, environment: Environment, *, is_ingest: bool) -> Iterator[Watch]:
    """Of the IoT rule called `name`; what fails in an action comes to a queue that is watched.

    Each metric counts messages that are lost, so those of the ingest rules page. What the other rules lose is
    found again by the reconcilers. A rule that is gone or wrong loses everything: the canary, and gaps in the
    audit, show that as well.
    """
    is_detailed = environment.alarms.is_detailed
    if not (is_ingest or is_detailed):
        return
    remedies = {
        "RuleNotFound": "Devices publish to a rule that is gone: what they send is lost. Deploy it again.",
        "RuleMessageThrottled": "IoT Core's quota of rule evaluations is used up: what it acknowledged "
        "meanwhile is lost. Raise the quota, and look for gaps in the audit.",
        "ParseError": "The rule's SQL cannot read a payload. It should take every one as base64.",
    }
    for metric, remedy in remedies.items():
        if not is_detailed and metric != "RuleMessageThrottled":
            continue
        yield Watch(
            name=f"{name}-{metric}", metric=rule_metric(name, metric), is_page=is_ingest, remedy=remedy
        )
    # The emulator has no alarms on queries.
    if not environment.is_emulated:
        yield Watch(
            name=f"{name}-ErrorActionFailure",
            metric=_error_action_failures(name),
            is_page=is_ingest,
            remedy="An action of the rule failed and its error action as well: what IoT Core acknowledged "
            "is lost. See the key, policies and roles of all its queues; look for gaps in the audit.",
        )


def of_ingest_errors(queue_name: str) -> Watch:
    """An ingest rule's action failed: the error action sent the payload to the queue called `queue_name`."""
    return Watch(
        name=f"{queue_name}-received",
        metric=queue_metric(queue_name, "NumberOfMessagesSent", "Sum", _FIVE_MINUTES),
        remedy="A rule could not write to its queues. The queue has the payloads, with the error of each.",
    )


_AUDIT_TICKETS: Final = {
    "findings": "The day's last report (audit/verdicts/ names it) lists what broke a promise.",
    "incomplete": "The `reasons` of the day's last report (audit/verdicts/ names it) say which evidence is "
    "missing: manifests of devices, objects of the archive, or rows that could not be read.",
}


def of_audit(environment: Environment) -> Iterator[Watch]:
    """Of the delivery audit's verdicts; none on yesterday is bad where that audit should start by itself."""
    if environment.audit.schedule is not None:
        yield _of_silent_job(environment, AUDIT, audit_namespace(environment, AUDIT), AUDIT_METRICS[0])
    for audit in audits(environment):
        for name, remedy in _AUDIT_TICKETS.items():
            yield Watch(
                name=environment.resource_name(f"{audit}-{name}"),
                metric=audit_metric(environment, audit, name),
                remedy=remedy,
            )
        # No device sends it again, and no replay can: the tap has no text of it.
        yield Watch(
            name=environment.resource_name(f"{audit}-{ACKNOWLEDGED_LOST.replace('_', '-')}"),
            metric=audit_metric(environment, audit, ACKNOWLEDGED_LOST),
            is_page=True,
            remedy="IoT Core acknowledged events that never came to the tap. Look for them in the tap's "
            "queues, then at the rules' metrics in the hours of the findings of the hop `iot_rule`.",
        )


def of_compaction(environment: Environment) -> Iterator[Watch]:
    """Of the compaction: hours that it could not do; silence is bad where it should start by itself."""
    namespace = compaction_namespace(environment)
    for name in COMPACTION_METRICS:
        if environment.compaction.schedule is not None:
            yield _of_silent_job(environment, "compaction", namespace, name)
        yield Watch(
            name=environment.resource_name(f"compaction-{name}"),
            metric=_total(namespace, name),
            remedy="The run's log names the hours with the reason. Their raw objects stay until it is done.",
        )


def _of_silent_job(environment: Environment, job: str, namespace: str, metric: str) -> Watch:
    """Of a job that should write `metric` at least once a day, whatever its value."""
    return Watch(
        name=environment.resource_name(f"{job}-missing"),
        metric=cloudwatch.Metric(
            namespace=namespace, metric_name=metric, statistic="SampleCount", period=_HOUR
        ),
        threshold=1,
        periods=_DAILY_H,
        is_silence_bad=True,
        is_least=True,
        remedy="The job has had no result for a day: see its trigger, its runs and their logs.",
    )


def queue_metric(name: str, metric: str, statistic: str, period: Duration) -> cloudwatch.Metric:
    """A metric of the queue called `name`."""
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name=metric,
        dimensions_map={"QueueName": name},
        statistic=statistic,
        period=period,
    )


def function_metric(name: str | None, metric: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """A metric of the function called `name`, over five minutes; None: of all functions of the account."""
    return cloudwatch.Metric(
        namespace="AWS/Lambda",
        metric_name=metric,
        dimensions_map={} if name is None else {"FunctionName": name},
        statistic=statistic,
        period=_FIVE_MINUTES,
    )


def rule_metric(name: str, metric: str) -> cloudwatch.Metric:
    """A metric of the IoT rule called `name`, over five minutes."""
    return cloudwatch.Metric(
        namespace="AWS/IoT",
        metric_name=metric,
        dimensions_map={"RuleName": name},
        statistic="Sum",
        period=_FIVE_MINUTES,
    )


def _error_action_failures(rule: str) -> cloudwatch.MathExpression:
    """How often the error action of a rule failed, over five minutes.

    A query, because the metric has a second dimension, whose values are not documented.
    """
    return cloudwatch.MathExpression(
        expression=f"SELECT SUM(ErrorActionFailure) FROM \"AWS/IoT\" WHERE RuleName = '{rule}'",  # noqa: S608 - no SQL
        period=_FIVE_MINUTES,
        using_metrics={},
        label="ErrorActionFailure",
    )


def audits(environment: Environment) -> Sequence[str]:
    """Which audits `environment` has."""
    return (AUDIT,) if environment.audit_today is None else (AUDIT, AUDIT_TODAY)


def audit_namespace(environment: Environment, audit: str) -> str:
    """Where the metrics of `audit` stand."""
    return f"{PROJECT}/{environment.name}/{audit}"


def audit_metric(environment: Environment, audit: str, metric: str) -> cloudwatch.Metric:
    """One of `AUDIT_METRICS`, of a day."""
    return _total(audit_namespace(environment, audit), metric)


def compaction_namespace(environment: Environment) -> str:
    """Where the compaction's metrics stand."""
    return f"{PROJECT}/{environment.name}/compaction"


def _total(namespace: str, metric: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(namespace=namespace, metric_name=metric, statistic="Maximum", period=_DAY)
