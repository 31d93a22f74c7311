"""A plane's months: what is billed for nothing, and the traffic of each regime."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from time import sleep
from typing import Final

from eventplane.envelope import pack_texts
from eventplane.ledger import TAP
from eventplane_aws.prices import Units, scaled
from lab.benchmarks.cloud.plane import ALARM, ALARM_INBOXES, DOOR, DOOR_INBOXES, BenchDevice, event
from lab.benchmarks.cost.deployment import MONTH_H, MONTH_MIN, MONTH_S, PricedPlane

BATCH: Final = 250
"""What the forwarder packs at most by default."""

DEVICES: Final = 1_200
"""Devices of a trickle, each with one event a minute."""

_EVENTS_PER_S: Final = DEVICES / 60
_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """`events` of `type` to its two `inboxes`, `batch` of them a publish, at `per_s` publishes a second."""

    name: str
    type: str
    inboxes: tuple[str, ...]
    events: int
    batch: int
    per_s: float
    aim: float | None
    note: str

    @property
    def is_urgent(self) -> bool:
        return self.type == ALARM

    @property
    def seconds(self) -> float:
        """The time that devices would take to send all."""
        return self.events / self.batch / self.per_s

    def payloads(self) -> Iterator[bytes]:
        """Yield the device's payloads, compressed as the forwarder does it."""
        for sent in range(0, self.events, self.batch):
            size = min(self.batch, self.events - sent)
            yield pack_texts(event(f"{self.name}{next(_NUMBERS)}", self.type) for _ in range(size))

    def play(self, device: BenchDevice, *, at_once: bool) -> list[bytes]:
        """Publish all, `at_once` or at its pace, and return what was published."""
        published = []
        for payload in self.payloads():
            device.publish(payload, urgent=self.is_urgent)
            published.append(payload)
            if not at_once:
                sleep(1 / self.per_s)
        return published


def regimes(scale: float) -> list[Regime]:
    """All of them; `scale` 1 is the full size."""
    bulk = Regime(
        name="bulk",
        type=DOOR,
        inboxes=DOOR_INBOXES,
        events=max(1, round(100 * scale)) * BATCH,
        batch=BATCH,
        per_s=20,
        aim=0.10,
        note=f"full batches of {BATCH}, as a backlog drains",
    )
    return [
        bulk,
        *(
            replace(
                bulk,
                name=name,
                events=max(1, round(2_400 * scale / batch)) * batch,
                batch=batch,
                per_s=_EVENTS_PER_S / batch,
                aim=aim,
                note=f"{DEVICES:,} devices with one event a minute each, {batch} a publish",
            )
            for name, batch, aim in (
                ("trickle_single", 1, None),
                ("trickle", 3, 0.60),
                ("trickle_five", 5, 0.60),
            )
        ),
        Regime(
            name="alarm",
            type=ALARM,
            inboxes=ALARM_INBOXES,
            # Two windows of the archive's functions: in a shorter run an event has too many objects.
            events=max(2, round(240 * scale)),
            batch=1,
            per_s=2,
            aim=6.0,
            note="alarms alone, one every half second, over the urgent lane",
        ),
    ]


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
