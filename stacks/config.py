"""The environments: everything that differs between two deployments of the plane, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_logs as logs

from eventplane.errors import EventPlaneError

PROJECT: Final = "eventplane"
"""What all names of resources start with."""

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for at least so many function timeouts (AWS Lambda guide for SQS)."""

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
        inbox_visibility_s: seconds a consumer has to handle what it received before it comes again.
        audit_workers: Glue workers of the delivery audit.
        audit_timeout_min: minutes after which the delivery audit is stopped.
        certificate_grace_s: seconds that a certificate stays valid after a connection with its successor.
    """

    name: str
    account: str | None = None
    region: str | None = None
    is_emulated: bool = False
    removal_policy: RemovalPolicy
    log_retention: logs.RetentionDays
    router: FunctionSize
    archive_writer: FunctionSize
    inbox_visibility_s: int
    audit_workers: int
    audit_timeout_min: int
    certificate_grace_s: int = 900

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise EnvironmentSettingError(
                "name", f"is {self.name!r}, not up to 12 lower-case letters and digits"
            )
        if self.audit_workers < 2:
            raise EnvironmentSettingError("audit_workers", f"is {self.audit_workers}; Spark on Glue needs 2")
        if not 0 <= self.certificate_grace_s <= 900:
            # It is a message's delay (Amazon SQS quotas).
            raise EnvironmentSettingError(
                "certificate_grace_s", f"is {self.certificate_grace_s}, not within 0 to 900"
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
            inbox_visibility_s=30,
            audit_workers=2,
            audit_timeout_min=15,
            certificate_grace_s=1,
        ),
        Environment(
            name="dev",
            removal_policy=RemovalPolicy.DESTROY,
            log_retention=logs.RetentionDays.ONE_WEEK,
            router=_ROUTER,
            archive_writer=_ARCHIVE_WRITER,
            inbox_visibility_s=60,
            audit_workers=2,
            audit_timeout_min=30,
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
