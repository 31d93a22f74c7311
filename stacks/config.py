"""The environments: everything that differs between two deployments of the plane, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_logs as logs

from eventplane.errors import EventPlaneError
from eventplane.presence import BUCKETS

PROJECT: Final = "eventplane"
"""What all names of resources start with."""

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for at least so many function timeouts (AWS Lambda guide for SQS)."""

_DAY_S: Final = 86_400

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")


class UnknownEnvironmentError(EventPlaneError):
    """There is no environment called `name`; `known` are those there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"environment {name!r} is unknown; use ENV=NAME (make) or --context env=NAME (cdk) with one of: "
            f"{', '.join(known)}"
        )
        self.name = name
        self.known = known


class EnvironmentSettingError(EventPlaneError):
    """The `setting` of an environment has a value that cannot be deployed."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}; correct it in stacks/config.py")
        self.setting = setting
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class FunctionSize:
    """How one function runs: memory in MiB, timeout and batching window in seconds, messages a batch.

    `max_concurrency` bounds the batches of one source queue that are worked on at a time.
    """

    memory_mib: int
    timeout_s: int
    batch_size: int
    batch_window_s: int
    max_concurrency: int

    def __post_init__(self) -> None:
        # Bounds of AWS Lambda and of its event source mappings for SQS.
        self._check("memory_mib", 128, 10_240)
        self._check("timeout_s", 1, 900)
        self._check("batch_size", 1, 10_000)
        self._check("batch_window_s", 0, 300)
        self._check("max_concurrency", 2, 1_000)
        if self.batch_size > 10 and self.batch_window_s < 1:
            raise EnvironmentSettingError("batch_window_s", "must be 1 or more with a batch_size beyond 10")

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
        if not 1 <= self.sweepers <= BUCKETS:
            raise EnvironmentSettingError("sweepers", f"is {self.sweepers}, not within 1 to {BUCKETS}")
        if not 20 <= self.sweeper.timeout_s <= 60:
            raise EnvironmentSettingError(
                "sweeper", "must have 20 s or more to end in time, and at most the minute to the next sweep"
            )

    @property
    def shares(self) -> list[list[int]]:
        """The buckets of each sweeper."""
        return [list(range(first, BUCKETS, self.sweepers)) for first in range(self.sweepers)]


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
        router, archive_writer: how the functions run.
        presence: when something is said of a device, and how the functions run that do.
        inbox_visibility_s: seconds a consumer has to handle what it received before it comes again.
        audit_workers: Glue workers of the delivery audit.
        audit_timeout_min: minutes after which the delivery audit is stopped.
        provisions_devices: devices get their certificates by claim; otherwise somebody registers each one.
        provisioning_hook: the Lambda function, in the same account, that is asked before each registration.
    """

    name: str
    account: str | None = None
    region: str | None = None
    is_emulated: bool = False
    removal_policy: RemovalPolicy
    log_retention: logs.RetentionDays
    router: FunctionSize
    archive_writer: FunctionSize
    presence: PresenceSettings
    inbox_visibility_s: int
    audit_workers: int
    audit_timeout_min: int
    provisions_devices: bool = False
    provisioning_hook: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise EnvironmentSettingError(
                "name", f"is {self.name!r}, not up to 12 lower-case letters and digits"
            )
        if self.audit_workers < 2:
            raise EnvironmentSettingError("audit_workers", f"is {self.audit_workers}; Spark on Glue needs 2")
        if self.provisions_devices and self.keeps_data and not self.provisioning_hook:
            raise EnvironmentSettingError(
                "provisioning_hook", "is missing: without it whoever has a claim could become any device"
            )

    @property
    def keeps_data(self) -> bool:
        """Whether its stateful resources outlive their stack."""
        return self.removal_policy is not RemovalPolicy.DESTROY

    def resource_name(self, suffix: str) -> str:
        """What a resource is called in this environment, by the convention that all stacks share."""
        return f"{PROJECT}-{self.name}-{suffix}"


# A record carries a frame of up to 1,000 events, so that ten are a large batch already; without a window an
# alarm is never held back.
_ROUTER = FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=10)

# The tap is in no hurry: the longer it gathers, the fewer objects the audit has to open.
_ARCHIVE_WRITER = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=500, batch_window_s=60, max_concurrency=5
)

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
            archive_writer=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=1, max_concurrency=2
            ),
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
            inbox_visibility_s=30,
            audit_workers=2,
            audit_timeout_min=15,
            provisions_devices=True,
        ),
        Environment(
            name="dev",
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_WEEK,
            router=_ROUTER,
            archive_writer=_ARCHIVE_WRITER,
            presence=_PRESENCE,
            inbox_visibility_s=60,
            audit_workers=2,
            audit_timeout_min=30,
            provisions_devices=True,
        ),
        Environment(
            name="prod",
            removal_policy=RemovalPolicy.RETAIN,
            log_retention=logs.RetentionDays.THREE_MONTHS,
            router=FunctionSize(
                memory_mib=512, timeout_s=30, batch_size=10, batch_window_s=0, max_concurrency=100
            ),
            archive_writer=FunctionSize(
                memory_mib=512, timeout_s=60, batch_size=500, batch_window_s=60, max_concurrency=20
            ),
            presence=replace(
                _PRESENCE,
                sweepers=BUCKETS,
                recorder=FunctionSize(
                    memory_mib=512, timeout_s=30, batch_size=100, batch_window_s=2, max_concurrency=50
                ),
            ),
            inbox_visibility_s=60,
            audit_workers=5,
            audit_timeout_min=120,
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
