"""The parts of an environment's settings (`environment.py`); each refuses values that cannot be deployed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from aws_cdk import Duration

from eventplane import function_settings
from eventplane.archive_layout import LEAST_RAW_DAYS
from eventplane.errors import EventPlaneError
from eventplane.presence import OUTAGE, OutageLimits
from eventplane.sinks import MAX_PORT, url_problem
from eventplane.trace_context import DEFAULT_SHARE
from eventplane.traffic import Quota
from eventplane_aws import rules

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for so many function timeouts (AWS Lambda guide for SQS)."""

ERASURE_DAYS: Final = 30
"""Days in which a person's events have to be erased once the person asks: a month (GDPR, article 12(3))."""

_DAY_S: Final = 86_400

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_SCHEDULE: Final = re.compile(r"(cron|rate)\(.+\)")
_COLLECTOR_URL: Final = re.compile(
    r"(http://(localhost|127\.0\.0\.1):\d{1,5}|https://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?)(/[\w.~-]+)*/?",
    re.ASCII,
)
_LAYER: Final = re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:layer:[A-Za-z0-9_-]+:\d+")
_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]"
)
_CERTIFICATE: Final = re.compile(
    r"arn:aws(-cn|-us-gov)?:acm:[a-z]{2}(-[a-z]+)+-\d:\d{12}:certificate/[a-zA-Z0-9/-]+"
)
_PROTOCOL_URL: Final = re.compile(r"([a-z][a-z0-9]{1,19})://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?", re.ASCII)
_SECRET: Final = re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}", re.ASCII)


class EnvironmentSettingError(EventPlaneError):
    """The `setting` of an environment has a value that cannot be deployed."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}; correct it in stacks/config.py")
        self.setting = setting
        self.problem = problem


class IncompleteEnvironmentError(EventPlaneError):
    """The environment called `name` keeps data, and the `missing` settings are not filled in."""

    def __init__(self, name: str, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"{name} lacks {', '.join(missing)}: it carries people's alarms and keeps their data, so it is "
            "deployed to one account and region, and somebody is paged; fill them in in stacks/config.py"
        )
        self.name = name
        self.missing = missing


def check_within(setting: str, value: float, low: int, high: int) -> None:
    """Raise `EnvironmentSettingError` unless `low` <= `value` <= `high`."""
    if not low <= value <= high:
        raise EnvironmentSettingError(setting, f"is {value}, not within {low} to {high}")


@dataclass(frozen=True, kw_only=True)
class FunctionSize:
    """The size of one function: memory in MiB, timeout and batching window in seconds, messages a batch.

    A source queue hides a message for `visibility_factor` timeouts: 6 leave Lambda the time to try again what
    it throttled (AWS Lambda guide for SQS). Fewer bring a killed function's messages back sooner, where a
    message has receives to spare for throttled ones. The last four are unused where no queue feeds it.
    `max_concurrency` bounds the batches of one source queue that are worked on at a time.
    `reserved_concurrency` keeps so many of the account's executions free for this function alone.
    `provisioned_concurrency` keeps so many of its executions warm, so that they start without delay; they
    cost as long as they are kept.
    """

    memory_mib: int
    timeout_s: int
    batch_size: int = 1
    batch_window_s: int = 0
    max_concurrency: int = 2
    reserved_concurrency: int | None = None
    provisioned_concurrency: int | None = None
    visibility_factor: int = VISIBILITY_FACTOR

    def __post_init__(self) -> None:
        check_within("memory_mib", self.memory_mib, 128, rules.LAMBDA_MEMORY.most)
        check_within("timeout_s", self.timeout_s, 1, rules.LAMBDA_TIMEOUT.most)
        check_within("batch_size", self.batch_size, 1, rules.MAPPING_BATCH.most)
        check_within("batch_window_s", self.batch_window_s, 0, rules.MAPPING_WINDOW.most)
        check_within("max_concurrency", self.max_concurrency, 2, rules.MAPPING_CONCURRENCY.most)
        # A queue that hides messages for less than a timeout cannot feed the function.
        check_within("visibility_factor", self.visibility_factor, 1, VISIBILITY_FACTOR)
        if self.batch_size > 10 and self.batch_window_s < 1:
            raise EnvironmentSettingError("batch_window_s", "must be 1 or more with a batch_size beyond 10")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.max_concurrency:
            # Lambda would throttle what the mapping sends, and every throttled message spends a receive.
            raise EnvironmentSettingError("reserved_concurrency", "must not be below max_concurrency")
        if self.provisioned_concurrency is not None:
            # While a version is deployed the old one keeps its executions: there are twice as many.
            most = (self.reserved_concurrency or 2 * self.max_concurrency) // 2
            check_within("provisioned_concurrency", self.provisioned_concurrency, 1, most)

    @property
    def timeout(self) -> Duration:
        return Duration.seconds(self.timeout_s)

    @property
    def visibility_s(self) -> int:
        """The visibility timeout of the source queue, seconds."""
        return self.visibility_factor * self.timeout_s + self.batch_window_s

    @property
    def visibility(self) -> Duration:
        return Duration.seconds(self.visibility_s)


ROTATION_SIZE: Final = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=100, batch_window_s=5, max_concurrency=2
)
"""Of the certificate keeper. No caller waits for it; two at a time stay below the ten calls a second that AWS
IoT allows an account."""


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """The alarms of an environment.

    Args:
        page_subscribers: e-mail addresses and HTTPS endpoints (a pager's) that are told at any hour: people's
            alarms are late, or may be lost. SNS asks each to confirm.
        ticket_subscribers: those who are told of what can wait for the next working day.
        urgent_age_s, age_s: how old an urgent, or another, message may become in a queue, seconds.
        blocked_s: how old a message may become in a queue with an order, where one that fails blocks others.
        is_detailed: alarms on the age of all queues, the errors of all functions and the failures of all
            rules. Otherwise the canary counts for all queues, and one alarm has the errors of all functions,
            where no person's alarm depends on them: a metric that an alarm reads costs $0.10 a month.
        is_canary_scheduled: whether the canary runs by itself; otherwise only when somebody invokes it.
        canary_every_min: minutes between two of the canary's alarms, 1 to 720. Each hour with a value of a
            custom metric is paid for, so an environment that nobody's safety depends on has them rarely.
        canary_late_s: seconds after which the canary's alarm counts as late, 1 to 50.
        queues_every_min: minutes between two of the canary's looks at all queues, 1 to 60.
    """

    page_subscribers: tuple[str, ...] = ()
    ticket_subscribers: tuple[str, ...] = ()
    urgent_age_s: int = 60
    age_s: int = 900
    blocked_s: int = 60
    is_detailed: bool = True
    is_canary_scheduled: bool = True
    canary_every_min: int = 1
    canary_late_s: int = 10
    queues_every_min: int = 5

    def __post_init__(self) -> None:
        for setting in ("page_subscribers", "ticket_subscribers"):
            for address in getattr(self, setting):
                if problem := _address_problem(address):
                    raise EnvironmentSettingError(f"alarms.{setting}", f"has {address!r}, which {problem}")
        check_within("alarms.canary_every_min", self.canary_every_min, 1, 720)
        check_within("alarms.canary_late_s", self.canary_late_s, 1, 50)
        check_within("alarms.queues_every_min", self.queues_every_min, 1, 60)


def is_endpoint(address: str) -> bool:
    """Return whether a subscriber's `address` is an HTTPS endpoint, and not an e-mail address."""
    return address.startswith("https://")


def _address_problem(address: str) -> str | None:
    if is_endpoint(address):
        return url_problem(address, is_emulated=False, ports=range(1, MAX_PORT + 1))
    return None if _EMAIL.fullmatch(address) else "is neither an e-mail address nor an https:// URL"


@dataclass(frozen=True, kw_only=True)
class JobSize:
    """The size of one Glue job: at most so many workers of `worker_type`, minutes after which it is stopped.

    `schedule` is when it starts, as AWS Glue writes it (`cron(...)`, UTC); None means by hand. One that
    `is_flexible` may wait for spare capacity, or lose it and start again, for two thirds of the price.
    """

    workers: int
    timeout_min: int
    schedule: str | None = None
    worker_type: str = "G.1X"
    is_flexible: bool = False

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise EnvironmentSettingError("workers", f"is {self.workers}; Spark on Glue needs 2")
        check_within("timeout_min", self.timeout_min, 1, rules.JOB_TIMEOUT.most)
        if self.worker_type not in ("G.1X", "G.2X"):
            raise EnvironmentSettingError("worker_type", f"is {self.worker_type!r}, not G.1X or G.2X")
        if self.schedule is not None and not _SCHEDULE.fullmatch(self.schedule):
            raise EnvironmentSettingError("schedule", f"is {self.schedule!r}, not cron(...) or rate(...)")


@dataclass(frozen=True, kw_only=True)
class ObjectLock:
    """Nobody deletes a version of an object in the archive before it is `days` old (S3 Object Lock).

    A bucket that has it keeps it: it can be changed, and not taken away. Only what is written afterwards is
    locked. Objects can be replaced and deleted all the same: that makes new versions, and old ones stay.

    Args:
        mode: `governance`: roles with `s3:BypassGovernanceRetention` may delete all the same, which is the
            erasure's. `compliance`: nobody may, the account's root user neither; an erasure then leaves old
            versions, which leave by themselves after `days` and `replaced_days`.
        days: at most `compacted_days`; in compliance mode at most `ERASURE_DAYS`.
    """

    mode: Literal["governance", "compliance"]
    days: int

    def __post_init__(self) -> None:
        if self.mode not in ("governance", "compliance"):
            raise EnvironmentSettingError("lock.mode", f"is {self.mode!r}, not governance or compliance")
        if self.days < 1:
            raise EnvironmentSettingError("lock.days", f"is {self.days}, not 1 or more")
        if self.mode == "compliance" and self.days > ERASURE_DAYS:
            raise EnvironmentSettingError(
                "lock.days",
                f"is {self.days}; in compliance mode at most {ERASURE_DAYS}, as a person's events have to be "
                "gone by then",
            )


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Days after which the archive deletes by itself. Contracts and receipts of erasures stay.

    Args:
        raw_days: what devices and routers wrote; the compaction deletes it once it is compacted and verified.
        compacted_days: everything about events, in whatever form.
        replaced_days: what an object was before it was overwritten or deleted.
        lock: whether versions are kept from deletion meanwhile; None: whoever may delete them can.
    """

    raw_days: int
    compacted_days: int
    replaced_days: int
    lock: ObjectLock | None = None

    def __post_init__(self) -> None:
        if self.raw_days < LEAST_RAW_DAYS:
            raise EnvironmentSettingError(
                "raw_days", f"is {self.raw_days}; traces and replays read raw rows for {LEAST_RAW_DAYS} days"
            )
        if self.compacted_days <= self.raw_days:
            raise EnvironmentSettingError("compacted_days", "must be more than raw_days")
        if self.replaced_days < 1:
            raise EnvironmentSettingError("replaced_days", "must be 1 or more")
        if self.lock is not None and self.lock.days > self.compacted_days:
            raise EnvironmentSettingError("lock.days", "must not be more than compacted_days")
        if self.lock is not None and self.lock.mode == "compliance" and self.replaced_days > ERASURE_DAYS:
            # The lifecycle has to delete what the erasure cannot.
            raise EnvironmentSettingError(
                "replaced_days", f"is {self.replaced_days}; with a compliance lock at most {ERASURE_DAYS}"
            )


def _check_reconciler(size: FunctionSize) -> None:
    """Check the size of a function that is called every minute for all devices."""
    if not 20 <= size.timeout_s <= 60:
        raise EnvironmentSettingError(
            "reconciler", "must have 20 s or more to end in time, and at most the minute to the next call"
        )


@dataclass(frozen=True, kw_only=True)
class PresenceSettings:
    """The limits of presence. Seconds, but for `quiet_after_heartbeats`, which counts intervals.

    Args:
        disconnected_after_s: a device that reconnects within it was never away.
        connected_after_s: a device is back when it stayed for so long.
        quiet_after_heartbeats: without a heartbeat for so many of its intervals, a connected device is quiet.
        oldest_urgent_s, oldest_normal_s: so long an event may wait on a connected device.
        quota: a device that sends more floods.
        outage: when devices that went are an outage of the fleet: it pages, and carers get one notice.
        is_active: otherwise timers wait in their queue until somebody enables its event source mapping, and
            nobody reconciles. A run on one machine does both when it wants, so that what it expects does not
            depend on the moment at which it began.
        recorder: how the functions run that take down what is said of devices.
        timers: how the function runs that judges devices at their deadlines.
        reconciler: how the function runs that finds lost timers once a minute; no queue feeds it.
    """

    disconnected_after_s: int
    connected_after_s: int
    quiet_after_heartbeats: float
    oldest_urgent_s: int
    oldest_normal_s: int
    quota: Quota
    outage: OutageLimits = OUTAGE
    is_active: bool = True
    recorder: FunctionSize
    timers: FunctionSize
    reconciler: FunctionSize

    def __post_init__(self) -> None:
        for limit in ("disconnected_after_s", "connected_after_s", "oldest_urgent_s", "oldest_normal_s"):
            check_within(limit, getattr(self, limit), 1, _DAY_S)
        if not self.quiet_after_heartbeats > 1:
            raise EnvironmentSettingError(
                "quiet_after_heartbeats", "must be more than 1: a heartbeat may be a little late"
            )
        if self.timers.batch_window_s:
            raise EnvironmentSettingError(
                "timers", "must have no batching window: a notice would wait for it"
            )
        if not 0 < self.outage.share <= 1:
            raise EnvironmentSettingError("outage.share", f"is {self.outage.share}, not more than 0 up to 1")
        check_within("outage.least", self.outage.least, 1, 1_000)
        check_within("outage.within_s", self.outage.within_s, 60, 3_600)
        check_within("outage.held_s", self.outage.held_s, 0, 600)
        _check_reconciler(self.reconciler)


@dataclass(frozen=True, kw_only=True)
class DownlinkSettings:
    """The sizes of the functions that bring events to devices.

    Args:
        reader: how each function runs that reads a queue: events to send down, answers, what is due again.
        reconciler: how the function runs that looks once a minute at what is due; no queue feeds it.
        is_scheduled: otherwise nobody reconciles but who calls the function, as in a run on one machine.
    """

    reader: FunctionSize
    reconciler: FunctionSize
    is_scheduled: bool = True

    def __post_init__(self) -> None:
        _check_reconciler(self.reconciler)


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """The notifications, by e-mail, that an environment becomes expensive. AWS charges nothing for them.

    Costs are those of what carries the tag `plane`, which has to be activated in the Billing console as a
    cost allocation tag; a day passes until it counts.

    Args:
        subscribers: e-mail addresses.
        monthly_usd: what a month may cost; told at 80 % and 100 % of it, and when AWS forecasts more.
        anomaly_usd: told when AWS's anomaly detection finds that costs exceed the usual by so much.
    """

    subscribers: tuple[str, ...]
    monthly_usd: float
    anomaly_usd: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.subscribers) <= rules.BUDGET_SUBSCRIBERS.most:
            raise EnvironmentSettingError(
                "costs.subscribers",
                f"has {len(self.subscribers)} addresses, not 1 to {rules.BUDGET_SUBSCRIBERS.most}",
            )
        for address in self.subscribers:
            if not _EMAIL.fullmatch(address):
                raise EnvironmentSettingError("costs.subscribers", f"has {address!r}, no e-mail address")
        for setting in ("monthly_usd", "anomaly_usd"):
            if (value := getattr(self, setting)) <= 0:
                raise EnvironmentSettingError(f"costs.{setting}", f"is {value}, not more than 0")


@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """The collector, and what it is told.

    Args:
        endpoint: base URL of an OpenTelemetry collector that takes OTLP over HTTP, without credentials.
        share: of the events that carry no `traceparent`, so many are drawn, 0 to 1.
        collector_layer: ARN of a Lambda layer that runs the collector beside each function, at
            `http://localhost:4318`; it holds the credentials that a backend asks for.
    """

    endpoint: str
    share: float = DEFAULT_SHARE
    collector_layer: str | None = None

    def __post_init__(self) -> None:
        if not _COLLECTOR_URL.fullmatch(self.endpoint):
            # It is not repeated, since it may hold a password.
            raise EnvironmentSettingError(
                "tracing.endpoint", "is neither https:// without credentials nor http://localhost:PORT"
            )
        check_within("tracing.share", self.share, 0, 1)
        if self.collector_layer is not None and not _LAYER.fullmatch(self.collector_layer):
            raise EnvironmentSettingError(
                "tracing.collector_layer", f"is {self.collector_layer!r}, not the ARN of a layer's version"
            )

    @property
    def of_functions(self) -> function_settings.SpanRecorderSettings:
        """The settings of functions."""
        return function_settings.SpanRecorderSettings(otlp_endpoint=self.endpoint, trace_share=self.share)


@dataclass(frozen=True, kw_only=True)
class DeviceDomain:
    """A domain of one's own that devices connect to: by DNS they can be led to another region.

    Args:
        name: the domain's name, which DNS leads to the account's endpoint (Data-ATS) by a CNAME.
        certificate: ARN of its certificate in AWS Certificate Manager, in the plane's region. A renewed one
            has the same ARN. For another name or ARN deploy without the domain first.
    """

    name: str
    certificate: str

    def __post_init__(self) -> None:
        if not _DOMAIN.fullmatch(self.name):
            raise EnvironmentSettingError(
                "device_domain.name", f"is {self.name!r}, no domain like devices.example.org"
            )
        if not _CERTIFICATE.fullmatch(self.certificate):
            raise EnvironmentSettingError(
                "device_domain.certificate", f"is {self.certificate!r}, no certificate's ARN"
            )

    @property
    def region(self) -> str:
        """The region that its certificate is in."""
        return self.certificate.split(":")[3]


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings:
    """The location of the channels of an added protocol, and what routers need to write to them.

    Args:
        package: the folder with the package, its `*.dist-info` and `requirements.txt` with hashes, seen from
            the checkout.
        url: `NAME://HOST:PORT`, where the routers reach it. They run outside of any VPC.
        secret: name of the secret in AWS Secrets Manager that the package reads its credentials from; its
            `EVENTPLANE_NAME_SECRET` is set to it. None: it needs none.
    """

    package: str
    url: str
    secret: str | None = None

    def __post_init__(self) -> None:
        if not _PROTOCOL_URL.fullmatch(self.url):
            # It is not repeated, since it may hold a password.
            raise EnvironmentSettingError("protocols", "has a url that is not NAME://HOST:PORT")
        if self.secret is not None and not _SECRET.fullmatch(self.secret):
            raise EnvironmentSettingError("protocols", f"has {self.secret!r}, no name of a secret")

    @property
    def name(self) -> str:
        """The name of the protocol in contracts: the scheme of its URLs."""
        return self.url.partition(":")[0]
