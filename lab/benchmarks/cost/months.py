"""The monthly bill: an environment without events, and what events leave in the archive."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eventplane.ledger import TAP
from eventplane_aws.prices import Units, scaled
from lab.benchmarks.cost.deployment import MONTH_H, MONTH_MIN, MONTH_S, PricedPlane

_POLLERS: Final = 5
_LONG_POLL_S: Final = 20
"""Lambda polls a standard queue by five connections, each for 20 s at a time (AWS Compute Blog)."""

_JOB_H: Final = 2.5 / 60
"""How long a job runs that finds next to nothing: to start Spark and to list; assumed."""

CANARY: Final = ("canary", '{"do": "alarm"}')
"""The function that sends a synthetic urgent event, and the input by which it does."""

_GETS: Final = 2
"""Opening an object is a HEAD and a GET (Hadoop's S3A reads the length first)."""

_LISTED: Final = 1_000
"""Objects of one LIST."""

_LISTINGS: Final = 5
"""Of an hour's objects by the compaction: before, twice by Spark, after, and when they are deleted."""

_GB: Final = 1e9
_DAYS: Final = 30
"""Of a month."""

_AUDIT: Final = "delivery-audit"
_AUDIT_TODAY: Final = "audit-today"

Key = tuple[str, str]
"""A function, and what it is called with."""

Series = frozenset[tuple[str, ...]]
"""Metrics by namespace, dimensions and name: CloudWatch bills each that gets values."""


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """Units that one call or event uses, and the metrics that it gives values."""

    units: Units
    series: Series


def idle(deployment: PricedPlane, calls: Mapping[Key, StorageUsage], alarm: StorageUsage) -> dict[str, Units]:
    """Units a month, by purpose. `calls` are of scheduled functions, `alarm` is an urgent event's usage."""
    canaries = sum(each.calls for each in deployment.schedules if each.key == CANARY)
    hours: dict[tuple[str, ...], float] = {}
    for schedule in deployment.schedules:
        share = min(1.0, schedule.calls / MONTH_H)
        found = calls[schedule.key].series | (alarm.series if schedule.key == CANARY else frozenset())
        hours |= {each: max(share, hours.get(each, 0.0)) for each in found}
    return {
        "polling": _units(sqs_request=len(deployment.mappings) * _POLLERS * MONTH_S / _LONG_POLL_S),
        "alarms": _units(
            alarm_metric=deployment.alarm_metrics,
            composite_alarm=len(deployment.of("AWS::CloudWatch::CompositeAlarm")),
        ),
        "dashboards": _units(dashboard=len(deployment.of("AWS::CloudWatch::Dashboard"))),
        "metrics": _units(custom_metric=sum(hours.values()) + deployment.job_metrics),
        "schedules": _scheduled(deployment, calls),
        "canary": scaled(alarm.units, canaries),
        "provisioned": _units(lambda_provisioned_gb_s=deployment.provisioned_gb * MONTH_S),
        "secrets": _units(
            secret=len(deployment.of("AWS::SecretsManager::Secret")),
            kms_key=len(deployment.of("AWS::KMS::Key")) + bool(deployment.environment.customer_key),
        ),
    }


def jobs(deployment: PricedPlane) -> Units:
    """Return the cost of the jobs on the archive in a month in which they find next to nothing."""
    units = Units()
    for each in deployment.jobs:
        name = "glue_flex_dpu_h" if each.is_flexible else "glue_dpu_h"
        units[name] += each.runs * each.dpu * _JOB_H
    return units


def _scheduled(deployment: PricedPlane, calls: Mapping[Key, StorageUsage]) -> Units:
    units = Units()
    by_function: Counter[str] = Counter()
    for each in deployment.schedules:
        by_function[each.function] += each.calls
        units += _units(scheduler_call=each.calls) + scaled(calls[each.key].units, each.calls)
    for function, number in by_function.items():
        if deployment.functions[function].is_traced:
            units += _units(xray_trace=traces(number, MONTH_MIN))
    return units


def traces(invocations: float, seconds: float) -> float:
    """Traces that X-Ray records of a function: one a second, and 5% of what is beyond (AWS Lambda guide).

    `seconds` are those in which it is invoked at all.
    """
    first = min(invocations, seconds)
    return first + 0.05 * (invocations - first)


def _units(**numbers: float) -> Units:
    return Counter({name: number for name, number in numbers.items() if number})


@dataclass(frozen=True, slots=True)
class Reads:
    """The number of times that jobs open a raw object, by run, and how many bytes compaction makes of one."""

    compaction: float
    audit: float
    compacted_bytes: float


@dataclass(frozen=True, slots=True)
class WrittenBytes:
    """Objects and their bytes, by folder of the archive."""

    objects: Mapping[str, float]
    bytes: Mapping[str, float]


def requests(written: WrittenBytes, reads: Reads, deployment: PricedPlane) -> Units:
    """Requests to S3 that jobs make for what was `written`, until it is deleted."""
    units = Units()
    for folder, number in written.objects.items():
        audits = _audits(deployment, folder)
        units["s3_get"] += number * _GETS * (reads.compaction + audits * reads.audit)
        units["s3_list"] += number * (_LISTINGS + audits) / _LISTED
    return units


def storage(written: WrittenBytes, reads: Reads, deployment: PricedPlane) -> Units:
    """GB and months that what was `written` lies in the archive, raw, as old version and compacted."""
    kept = deployment.environment.retention
    months = kept.raw_days + kept.replaced_days + reads.compacted_bytes * kept.compacted_days
    return Counter({"s3_gb_month": sum(written.bytes.values()) / _GB * months / _DAYS})


def _audits(deployment: PricedPlane, folder: str) -> float:
    """How many runs of audits read an object, which is written at any hour of a day.

    The nightly audit of a day reads what was written on it and what has come since midnight; the audit of the
    day so far reads half of that day, on average. Both read the tap of the day before as well.
    """
    a_day = {each.name: each.runs / _DAYS for each in deployment.jobs}
    night, today = a_day.get(_AUDIT, 0.0), a_day.get(_AUDIT_TODAY, 0.0)
    own = 1.1 * night + 0.5 * today
    return own + night + today if folder == TAP else own
