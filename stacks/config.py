"""The environments: everything that differs between two deployments of the plane, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_logs as logs

from eventplane import resource_names
from eventplane.errors import EventPlaneError
from eventplane.presence import BUCKETS
from eventplane.webhook_url import url_problem
from stacks.archive_settings import JobSize, Retention
from stacks.setting_error import EnvironmentSettingError
from stacks.tracing_settings import TracingSettings

PROJECT: Final = resource_names.PROJECT
"""What all names of resources start with."""

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for at least so many function timeouts (AWS Lambda guide for SQS)."""

WEBHOOK_TIMEOUT_S: Final = 60
"""Least timeout of a webhook function, seconds: the longest attempt that a contract may ask for (30), and
what has to be done after it at its slowest (18)."""
_DAY_S: Final = 86_400

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")


class UnknownEnvironmentError(EventPlaneError):
    """There is no environment called `name`; `known` are those there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"environment {name!r} is unknown; use ENV=NAME (make) or --context env=NAME (cdk) with one of: "
            f"{', '.join(known)}"
        )
        self.name = name
        self.known = known


@dataclass(frozen=True, kw_only=True)
class FunctionSize:
    """How one function runs: memory in MiB, timeout and batching window in seconds, messages a batch.

    `max_concurrency` bounds the batches of one source queue that are worked on at a time.
    `reserved_concurrency` keeps so many of the account's executions free for this function alone.
    """

    memory_mib: int
    timeout_s: int
    batch_size: int
    batch_window_s: int
    max_concurrency: int
    reserved_concurrency: int | None = None

    def __post_init__(self) -> None:
        # Bounds of AWS Lambda and of its event source mappings for SQS.
        self._check("memory_mib", 128, 10_240)
        self._check("timeout_s", 1, 900)
        self._check("batch_size", 1, 10_000)
        self._check("batch_window_s", 0, 300)
        self._check("max_concurrency", 2, 1_000)
        if self.batch_size > 10 and self.batch_window_s < 1:
            raise EnvironmentSettingError("batch_window_s", "must be 1 or more with a batch_size beyond 10")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.max_concurrency:
            # Lambda would throttle what the mapping sends, and every throttled message spends a receive.
            raise EnvironmentSettingError("reserved_concurrency", "must not be below max_concurrency")

    def _check(self, setting: str, low: int, high: int) -> None:
        value = getattr(self, setting)
        if not low <= value <= high:
            raise EnvironmentSettingError(setting, f"is {value}, not within {low} to {high}")

    @property
    def timeout(self) -> Duration:
        return Duration.seconds(self.timeout_s)

    @property
    def visibility(self) -> Duration:
        """How long the source queue hides a message that this function works on."""
        return Duration.seconds(VISIBILITY_FACTOR * self.timeout_s + self.batch_window_s)


# It has work only when something fails, and then much of it at once.
_INGEST_ERRORS = FunctionSize(
    memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=5
)

# One order a batch, and two functions in all: a replay of a day must not crowd out what is new. The longest
# that Lambda allows, as a file of the tap can hold half a million events.
_REPLAY = FunctionSize(memory_mib=1_024, timeout_s=900, batch_size=1, batch_window_s=0, max_concurrency=2)

# People and starting programs call it; nobody waits in a queue for it.
_SUBSCRIPTIONS_API = FunctionSize(
    memory_mib=512, timeout_s=20, batch_size=1, batch_window_s=0, max_concurrency=2
)


def _shares(number: int) -> list[list[int]]:
    """The buckets of the devices, dealt out to `number` functions."""
    return [list(range(first, BUCKETS, number)) for first in range(number)]


def _check_scheduled(setting: str, number: int, size: FunctionSize) -> None:
    """`number` functions of `size` that share the devices and are called every minute."""
    if not 1 <= number <= BUCKETS:
        raise EnvironmentSettingError(setting, f"is {number}, not within 1 to {BUCKETS}")
    if not 20 <= size.timeout_s <= 60:
        raise EnvironmentSettingError(
            setting.removesuffix("s"),
            "must have 20 s or more to end in time, and at most the minute to the next call",
        )


@dataclass(frozen=True, kw_only=True)
class PresenceSettings:
    """When something is said of a device. Seconds, but for `quiet_after_heartbeats`, which counts intervals.

    Args:
        disconnected_after_s: a device that reconnects within it was never away.
        connected_after_s: a device is back when it stayed for so long.
        quiet_after_heartbeats: without a heartbeat for so many of its intervals, a connected device is quiet.
        oldest_urgent_s, oldest_normal_s: so long an event may wait on a connected device.
        sweepers: functions that share the devices; each sweeps once a minute.
        is_scheduled: otherwise nobody sweeps but who calls the function. A run on one machine does, so that
            what it expects does not depend on the minute in which it began.
        recorder: how the functions run that take down what is said of devices.
        sweeper: how the sweepers run; no queue feeds them.
    """

    disconnected_after_s: int
    connected_after_s: int
    quiet_after_heartbeats: float
    oldest_urgent_s: int
    oldest_normal_s: int
    sweepers: int
    is_scheduled: bool = True
    recorder: FunctionSize
    sweeper: FunctionSize

    def __post_init__(self) -> None:
        for limit in ("disconnected_after_s", "connected_after_s", "oldest_urgent_s", "oldest_normal_s"):
            if not 0 < getattr(self, limit) <= _DAY_S:
                raise EnvironmentSettingError(limit, f"is {getattr(self, limit)}, not within 1 to {_DAY_S}")
        if not self.quiet_after_heartbeats > 1:
            raise EnvironmentSettingError(
                "quiet_after_heartbeats", "must be more than 1: a heartbeat may be a little late"
            )
        _check_scheduled("sweepers", self.sweepers, self.sweeper)

    @property
    def shares(self) -> list[list[int]]:
        """The buckets of each sweeper."""
        return _shares(self.sweepers)


@dataclass(frozen=True, kw_only=True)
class DownlinkSettings:
    """How the functions run that bring events to devices.

    Args:
        reader: of a queue: what shall go down, what devices answer, what is due again.
        reconcilers: functions that share the devices; each looks once a minute at what is due.
        reconciler: how they run; no queue feeds them.
        is_scheduled: otherwise nobody reconciles but who calls the function (see `PresenceSettings`).
    """

    reader: FunctionSize
    reconcilers: int
    reconciler: FunctionSize
    is_scheduled: bool = True

    def __post_init__(self) -> None:
        _check_scheduled("reconcilers", self.reconcilers, self.reconciler)

    @property
    def shares(self) -> list[list[int]]:
        """The buckets of each reconciler."""
        return _shares(self.reconcilers)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One deployment of the plane.

    Args:
        name: stands in every resource's name.
        account, region: where it may be deployed; None means wherever the credentials lead.
        is_emulated: the cloud is an emulator: it speaks plain HTTP, so that queues and buckets cannot refuse
            it, and it has no roles for the CDK to assume.
        removal_policy: what becomes of stateful resources that leave their stack.
        log_retention: how long logs are kept.
        router, urgent_router, archive_writer, ingest_errors, replay, subscriptions_api, webhook: how the
            functions run; `urgent_router` is the one behind the devices' urgent lane, and `replay` bounds the
            pace at which events are sent again.
        contract_refresh_s: seconds after which a router looks for a newly published contract.
        webhook_urls: the HTTPS endpoint of each cloud service whose inbox the contract makes a webhook.
        presence: when something is said of a device, and how the functions run that do.
        downlink: how the functions run that bring events to devices.
        inbox_visibility_s: seconds a consumer has to handle what it received before it comes again.
        audit, compaction, erasure: how the Glue jobs run.
        audit_today: when the day so far is audited besides, as AWS Glue writes it; None means never.
        retention: how long the archive keeps what.
        customer_key: ARN of the AWS KMS key for queues, archive and alarms. It costs about $1 a month and
            $0.03 for 10,000 requests; without it AWS encrypts all but the alarms with keys of its own, for
            nothing. Only with it the customer can see who decrypts, and take it back.
        alarm_emails: who is told of alarms; others may subscribe to the topic.
        urgent_age_alarm_s, age_alarm_s: how old an urgent, or another, message may become in a queue before
            somebody is told.
        certificate_grace_s: seconds that a certificate stays valid after a connection with its successor.
        tracing: where the functions tell the spans of events to (docs/tracing.md); None: nowhere.
    """

    name: str
    account: str | None = None
    region: str | None = None
    is_emulated: bool = False
    removal_policy: RemovalPolicy
    log_retention: logs.RetentionDays
    router: FunctionSize
    urgent_router: FunctionSize
    archive_writer: FunctionSize
    ingest_errors: FunctionSize = _INGEST_ERRORS
    replay: FunctionSize = _REPLAY
    subscriptions_api: FunctionSize = _SUBSCRIPTIONS_API
    webhook: FunctionSize
    webhook_urls: Mapping[str, str] = field(default_factory=dict)
    contract_refresh_s: int = 30
    presence: PresenceSettings
    downlink: DownlinkSettings
    inbox_visibility_s: int
    audit: JobSize
    audit_today: str | None = None
    compaction: JobSize
    erasure: JobSize
    retention: Retention
    customer_key: str | None = None
    alarm_emails: tuple[str, ...] = ()
    urgent_age_alarm_s: int = 60
    age_alarm_s: int = 900
    certificate_grace_s: int = 900
    tracing: TracingSettings | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise EnvironmentSettingError(
                "name", f"is {self.name!r}, not up to 12 lower-case letters and digits"
            )
        if self.contract_refresh_s < 1:
            raise EnvironmentSettingError(
                "contract_refresh_s", f"is {self.contract_refresh_s}, not 1 or more"
            )
        if self.customer_key is not None and not _KEY.fullmatch(self.customer_key):
            raise EnvironmentSettingError("customer_key", f"is {self.customer_key!r}, not a KMS key's ARN")
        for participant, url in self.webhook_urls.items():
            if problem := url_problem(url, is_emulated=self.is_emulated):
                raise EnvironmentSettingError(f"webhook_urls[{participant!r}]", problem)
        if self.webhook.timeout_s < WEBHOOK_TIMEOUT_S:
            raise EnvironmentSettingError("webhook", f"has a timeout_s of less than {WEBHOOK_TIMEOUT_S}")
        if not 0 <= self.certificate_grace_s <= 900:
            # It is a message's delay (Amazon SQS quotas).
            raise EnvironmentSettingError(
                "certificate_grace_s", f"is {self.certificate_grace_s}, not within 0 to 900"
            )

    def webhook_url(self, participant: str) -> str:
        """Where the events of `participant` go. Raises `EnvironmentSettingError`."""
        if participant not in self.webhook_urls:
            raise EnvironmentSettingError(
                f"webhook_urls of {self.name}",
                f"has no URL for {participant}, whose inbox is a webhook in the contract",
            )
        return self.webhook_urls[participant]

    @property
    def keeps_data(self) -> bool:
        """Whether its stateful resources outlive their stack."""
        return self.removal_policy is not RemovalPolicy.DESTROY

    def resource_name(self, suffix: str) -> str:
        """What a resource is called in this environment, by the convention that all stacks share."""
        return resource_names.resource_name(self.name, suffix)


# A record carries a frame of up to 1,000 events, so that ten are a large batch already; without a window an
# alarm is never held back.
_ROUTER = FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=10)

_AUDIT_SCHEDULE = "cron(30 2 * * ? *)"
"""Late enough for what devices sent, and routers wrote down, around midnight."""

_NIGHTLY = "cron(0 2 * * ? *)"
_HOURLY = "cron(40 * * * ? *)"
"""The compaction leaves an hour alone for half of the next one (glue_jobs/common/hours.py)."""

# The tap is in no hurry: the longer it gathers, the fewer objects the audit has to open.
_ARCHIVE_WRITER = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=500, batch_window_s=60, max_concurrency=5
)

# An attempt mostly waits for the other side: memory buys it nothing but a shorter cold start.
_WEBHOOK = FunctionSize(memory_mib=512, timeout_s=60, batch_size=10, batch_window_s=0, max_concurrency=2)
# Two minutes cover a restart of the device or its router; a heartbeat comes every five (edge/settings.py).
_PRESENCE = PresenceSettings(
    disconnected_after_s=120,
    connected_after_s=60,
    quiet_after_heartbeats=3,
    oldest_urgent_s=60,
    oldest_normal_s=900,
    sweepers=1,
    # Of many heartbeats of one device the newest counts, and of many devices a hundred are read at once.
    recorder=FunctionSize(memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=2, max_concurrency=5),
    sweeper=FunctionSize(memory_mib=512, timeout_s=55, batch_size=1, batch_window_s=0, max_concurrency=2),
)

# Nothing waits for company: what a carer says shall be there now. A page of devices takes some seconds.
_DOWNLINK = DownlinkSettings(
    reader=FunctionSize(memory_mib=512, timeout_s=60, batch_size=10, batch_window_s=0, max_concurrency=5),
    reconcilers=1,
    reconciler=FunctionSize(memory_mib=512, timeout_s=55, batch_size=1, batch_window_s=0, max_concurrency=2),
)

ENVIRONMENTS: Final = {
    environment.name: environment
    for environment in (
        Environment(
            name="local",
            is_emulated=True,
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_DAY,
            # One machine plays everything: more would only wait for each other.
            router=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=2
            ),
            urgent_router=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=2
            ),
            archive_writer=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=1, max_concurrency=2
            ),
            webhook=_WEBHOOK,
            contract_refresh_s=1,
            # Nobody wants to wait on one machine.
            presence=replace(
                _PRESENCE,
                disconnected_after_s=5,
                connected_after_s=2,
                is_scheduled=False,
                recorder=FunctionSize(
                    memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=2
                ),
            ),
            downlink=replace(
                _DOWNLINK,
                is_scheduled=False,
                reader=replace(_DOWNLINK.reader, max_concurrency=2),
            ),
            inbox_visibility_s=30,
            audit=JobSize(workers=2, timeout_min=15),
            compaction=JobSize(workers=2, timeout_min=15),
            erasure=JobSize(workers=2, timeout_min=15),
            retention=Retention(raw_days=21, compacted_days=30, replaced_days=1),
            certificate_grace_s=1,
        ),
        Environment(
            name="dev",
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_WEEK,
            router=_ROUTER,
            urgent_router=_ROUTER,
            archive_writer=_ARCHIVE_WRITER,
            webhook=_WEBHOOK,
            presence=_PRESENCE,
            downlink=_DOWNLINK,
            inbox_visibility_s=60,
            audit=JobSize(workers=2, timeout_min=30, schedule=_AUDIT_SCHEDULE),
            compaction=JobSize(workers=2, timeout_min=60, schedule=_NIGHTLY, is_flexible=True),
            erasure=JobSize(workers=2, timeout_min=60),
            retention=Retention(raw_days=21, compacted_days=90, replaced_days=7),
        ),
        Environment(
            name="prod",
            removal_policy=RemovalPolicy.RETAIN,
            log_retention=logs.RetentionDays.THREE_MONTHS,
            router=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=100
            ),
            # Whatever else uses up the account's concurrency, alarms have their share.
            urgent_router=FunctionSize(
                memory_mib=512,
                timeout_s=30,
                batch_size=10,
                batch_window_s=0,
                max_concurrency=50,
                reserved_concurrency=50,
            ),
            archive_writer=FunctionSize(
                memory_mib=512, timeout_s=60, batch_size=500, batch_window_s=60, max_concurrency=20
            ),
            webhook=replace(_WEBHOOK, max_concurrency=10),
            presence=replace(
                _PRESENCE,
                sweepers=BUCKETS,
                recorder=FunctionSize(
                    memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=2, max_concurrency=50
                ),
            ),
            downlink=replace(
                _DOWNLINK,
                reconcilers=BUCKETS,
                reader=replace(_DOWNLINK.reader, max_concurrency=50),
            ),
            inbox_visibility_s=60,
            audit=JobSize(workers=5, timeout_min=120, schedule=_AUDIT_SCHEDULE),
            audit_today="cron(10 1-23 * * ? *)",
            compaction=JobSize(workers=5, timeout_min=120, schedule=_HOURLY, is_flexible=True),
            erasure=JobSize(workers=10, timeout_min=720),
            retention=Retention(raw_days=35, compacted_days=400, replaced_days=30),
        ),
    )
}
"""All environments by name."""


def environment(name: str) -> Environment:
    """The environment called `name`. Raises `UnknownEnvironmentError`."""
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise UnknownEnvironmentError(name, tuple(ENVIRONMENTS)) from None
