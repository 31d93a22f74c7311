"""The parts of an environment's settings (`environment.py`); each refuses values that cannot be deployed."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Final

from eventplane import function_settings
from eventplane.archive_layout import LEAST_RAW_DAYS
from eventplane.errors import EventPlaneError
from eventplane.fields import choice, flag, number, whole, word
from eventplane.limits import DAY_S
from eventplane.presence import PresenceLimits
from eventplane.settings import WrongValueError, check
from eventplane.sinks import MAX_PORT, url_problem
from eventplane.trace_context import DEFAULT_SHARE
from eventplane_aws import rules

if TYPE_CHECKING:
    from aws_cdk import Duration

VISIBILITY_FACTOR: Final = 6
"""A source queue hides a message for so many function timeouts (AWS Lambda guide for SQS)."""

ERASURE_DAYS: Final = 30
"""Days in which a person's events have to be erased once the person asks: a month (GDPR, article 12(3))."""

FILE: Final = "stacks/environments.toml"

_MOST_DAYS: Final = 36_500
"""A century, days: what S3 would take is of no use beyond."""

_EMAIL: Final = r"[^@\s]+@[^@\s]+\.[^@\s]+"
_HOST_AND_PORT: Final = r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?"


class EnvironmentSettingError(WrongValueError):
    """The `setting` of an environment has a value that cannot be deployed."""

    message = f"{{setting}} {{problem}}; correct it in {FILE}"


class IncompleteEnvironmentError(EventPlaneError):
    """The environment called `name` keeps data, and the `missing` settings are not filled in."""

    def __init__(self, name: str, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"{name} lacks {', '.join(missing)}: it carries people's alarms and keeps their data, so it is "
            f"deployed to one account and region, and somebody is paged; fill them in in {FILE}"
        )
        self.name = name
        self.missing = missing


class Checked:
    """A group of settings, each within what it declares; `check_together` has what they mean together."""

    def __post_init__(self) -> None:
        try:
            check(self)
            self.check_together()
        except WrongValueError as error:
            raise EnvironmentSettingError(error.setting, error.problem) from error

    def check_together(self) -> None:
        """Raise `WrongValueError` for settings that are wrong together."""


@dataclass(frozen=True, kw_only=True)
class FunctionSize(Checked):
    """The size of one function. `batch_size` and the next two are unused where no queue feeds it."""

    memory_mib: int = whole(MISSING, 128, rules.LAMBDA_MEMORY.most, "MiB")
    """Memory."""
    timeout_s: int = whole(MISSING, 1, rules.LAMBDA_TIMEOUT.most, "seconds")
    """Time after which an invocation is ended."""
    batch_size: int = whole(1, 1, rules.MAPPING_BATCH.most, "messages")
    """Messages of a queue that it gets at a time."""
    batch_window_s: int = whole(0, 0, rules.MAPPING_WINDOW.most, "seconds")
    """How long a batch is gathered; 1 or more with a `batch_size` beyond 10."""
    max_concurrency: int = whole(2, 2, rules.MAPPING_CONCURRENCY.most, "batches")
    """Batches of one source queue that are worked on at a time."""
    reserved_concurrency: int | None = whole(None, 1, 1_000_000, "executions")
    """Executions of the account that are kept free for this function alone."""
    provisioned_concurrency: int | None = whole(None, 1, 1_000_000, "executions")
    """Executions that are kept warm, so that they start without delay; they cost as long as they are kept."""
    # A queue that hides messages for less than a timeout cannot feed the function.
    visibility_factor: int = whole(VISIBILITY_FACTOR, 1, VISIBILITY_FACTOR, "timeouts")
    """How long a source queue hides a message. 6 leave Lambda the time to try again what it throttled (AWS
    Lambda guide for SQS). Fewer bring a killed function's messages back sooner, where a message has receives
    to spare for throttled ones."""

    def check_together(self) -> None:
        if self.batch_size > 10 and self.batch_window_s < 1:
            raise WrongValueError("batch_window_s", "must be 1 or more with a batch_size beyond 10")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.max_concurrency:
            # Lambda would throttle what the mapping sends, and every throttled message spends a receive.
            raise WrongValueError("reserved_concurrency", "must not be below max_concurrency")
        # While a version is deployed the old one keeps its executions: there are twice as many.
        most = (self.reserved_concurrency or 2 * self.max_concurrency) // 2
        if (self.provisioned_concurrency or 0) > most:
            raise WrongValueError(
                "provisioned_concurrency", f"is {self.provisioned_concurrency}, more than {most}"
            )

    @property
    def timeout(self) -> Duration:
        return _seconds(self.timeout_s)

    @property
    def visibility_s(self) -> int:
        """The visibility timeout of the source queue, seconds."""
        return self.visibility_factor * self.timeout_s + self.batch_window_s

    @property
    def visibility(self) -> Duration:
        return _seconds(self.visibility_s)


def _seconds(number: int) -> Duration:
    from aws_cdk import Duration  # which takes seconds to start; settings are read without it

    return Duration.seconds(number)


ROTATION_SIZE: Final = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=100, batch_window_s=5, max_concurrency=2
)
"""Of the certificate keeper. No caller waits for it; two at a time stay below the ten calls a second that AWS
IoT allows an account."""


@dataclass(frozen=True, kw_only=True)
class AlarmSettings(Checked):
    """The alarms of an environment."""

    page_subscribers: tuple[str, ...] = ()
    """E-mail addresses and HTTPS endpoints (a pager's) that are told at any hour: people's alarms are late,
    or may be lost. SNS asks each to confirm."""
    ticket_subscribers: tuple[str, ...] = ()
    """Those who are told of what can wait for the next working day."""
    urgent_age_s: int = whole(60, 1, 14 * DAY_S, "seconds")
    """How old an urgent message may become in a queue."""
    age_s: int = whole(900, 1, 14 * DAY_S, "seconds")
    """How old another message may become in a queue."""
    blocked_s: int = whole(60, 1, 14 * DAY_S, "seconds")
    """How old a message may become in a queue with an order, where one that fails blocks others."""
    is_detailed: bool = flag(True)
    """Alarms on the age of all queues, the errors of all functions and the failures of all rules. Otherwise
    the canary counts for all queues, and one alarm has the errors of all functions, where no person's alarm
    depends on them: a metric that an alarm reads costs $0.10 a month."""
    is_canary_scheduled: bool = flag(True)
    """Whether the canary runs by itself; otherwise only when somebody invokes it."""
    canary_every_min: int = whole(1, 1, 720, "minutes")
    """Time between two of the canary's alarms. Each hour with a value of a custom metric is paid for, so an
    environment that nobody's safety depends on has them rarely."""
    canary_late_s: int = whole(10, 1, 50, "seconds")
    """Time after which the canary's alarm counts as late."""
    queues_every_min: int = whole(5, 1, 60, "minutes")
    """Time between two of the canary's looks at all queues."""

    def check_together(self) -> None:
        for setting in ("page_subscribers", "ticket_subscribers"):
            for address in getattr(self, setting):
                if problem := _address_problem(address):
                    raise WrongValueError(setting, f"has {address!r}, which {problem}")


def is_endpoint(address: str) -> bool:
    """Return whether a subscriber's `address` is an HTTPS endpoint, and not an e-mail address."""
    return address.startswith("https://")


def _address_problem(address: str) -> str | None:
    if is_endpoint(address):
        return url_problem(address, is_emulated=False, ports=range(1, MAX_PORT + 1))
    return None if re.fullmatch(_EMAIL, address) else "is neither an e-mail address nor an https:// URL"


@dataclass(frozen=True, kw_only=True)
class JobSize(Checked):
    """The size of one Glue job."""

    workers: int = whole(MISSING, 2, 10_000, "workers")
    """Most workers; Spark on Glue needs 2."""
    timeout_min: int = whole(MISSING, 1, rules.JOB_TIMEOUT.most, "minutes")
    """Time after which it is stopped."""
    schedule: str | None = word(r"(cron|rate)\(.+\)", "cron(...) or rate(...)", None)
    """When it starts, as AWS Glue writes it (UTC); without it by hand."""
    worker_type: str = choice("G.1X", ("G.1X", "G.2X"))
    """Type of the workers."""
    is_flexible: bool = flag(False)
    """Whether it may wait for spare capacity, or lose it and start again, for two thirds of the price."""


@dataclass(frozen=True, kw_only=True)
class ObjectLock(Checked):
    """Nobody deletes a version of an object in the archive before it is `days` old (S3 Object Lock).

    A bucket that has it keeps it: it can be changed, and not taken away. Only what is written afterwards is
    locked. Objects can be replaced and deleted all the same: that makes new versions, and old ones stay.
    """

    mode: str = choice(MISSING, ("governance", "compliance"))
    """`governance`: roles with `s3:BypassGovernanceRetention` may delete all the same, which is the
    erasure's. `compliance`: nobody may, the account's root user neither; an erasure then leaves old versions,
    which leave by themselves after `days` and `replaced_days`."""
    days: int = whole(MISSING, 1, _MOST_DAYS, "days")
    """At most `compacted_days`; in compliance mode at most 30."""

    def check_together(self) -> None:
        if self.mode == "compliance" and self.days > ERASURE_DAYS:
            raise WrongValueError(
                "days",
                f"is {self.days}; in compliance mode at most {ERASURE_DAYS}, as a person's events have to be "
                "gone by then",
            )


@dataclass(frozen=True, kw_only=True)
class Retention(Checked):
    """Days after which the archive deletes by itself. Contracts and receipts of erasures stay."""

    # Traces and replays read raw rows.
    raw_days: int = whole(MISSING, LEAST_RAW_DAYS, _MOST_DAYS, "days")
    """What devices and routers wrote; the compaction deletes it once it is compacted and verified."""
    compacted_days: int = whole(MISSING, LEAST_RAW_DAYS + 1, _MOST_DAYS, "days")
    """Everything about events, in whatever form."""
    replaced_days: int = whole(MISSING, 1, _MOST_DAYS, "days")
    """What an object was before it was overwritten or deleted."""
    lock: ObjectLock | None = None
    """Whether versions are kept from deletion meanwhile; without it whoever may delete them can."""

    def check_together(self) -> None:
        if self.compacted_days <= self.raw_days:
            raise WrongValueError("compacted_days", "must be more than raw_days")
        if self.lock is not None and self.lock.days > self.compacted_days:
            raise WrongValueError("lock.days", "must not be more than compacted_days")
        if self.lock is not None and self.lock.mode == "compliance" and self.replaced_days > ERASURE_DAYS:
            # The lifecycle has to delete what the erasure cannot.
            raise WrongValueError(
                "replaced_days", f"is {self.replaced_days}; with a compliance lock at most {ERASURE_DAYS}"
            )


def _check_reconciler(size: FunctionSize) -> None:
    """Check the size of a function that is called every minute for all devices."""
    if not 20 <= size.timeout_s <= 60:
        raise WrongValueError(
            "reconciler", "must have 20 s or more to end in time, and at most the minute to the next call"
        )


@dataclass(frozen=True, kw_only=True)
class PresenceSettings(PresenceLimits, Checked):
    """The limits of presence, and how its functions run."""

    is_active: bool = flag(True)
    """Otherwise timers wait in their queue until its event source mapping is enabled, and the reconciler has
    no schedule. A run on one machine starts both itself, so that its results do not depend on the moment at
    which it began."""
    recorder: FunctionSize
    """How the functions run that take down what is said of devices."""
    timers: FunctionSize
    """How the function runs that judges devices at their deadlines."""
    reconciler: FunctionSize
    """How the function runs that finds lost timers once a minute; no queue feeds it."""

    def check_together(self) -> None:
        if self.timers.batch_window_s:
            raise WrongValueError("timers", "must have no batching window: a notice would wait for it")
        _check_reconciler(self.reconciler)


@dataclass(frozen=True, kw_only=True)
class DownlinkSettings(Checked):
    """The sizes of the functions that bring events to devices."""

    reader: FunctionSize
    """How each function runs that reads a queue: events to send down, answers, what is due again."""
    reconciler: FunctionSize
    """How the function runs that looks once a minute at what is due; no queue feeds it."""
    is_scheduled: bool = flag(True)
    """Otherwise the reconciler runs only when it is called, as in a run on one machine."""

    def check_together(self) -> None:
        _check_reconciler(self.reconciler)


@dataclass(frozen=True, kw_only=True)
class CostSettings(Checked):
    """The notifications, by e-mail, that an environment becomes expensive. AWS charges nothing for them.

    Costs are those of what carries the tag `plane`, which has to be activated in the Billing console as a
    cost allocation tag; a day passes until it counts.
    """

    subscribers: tuple[str, ...]
    """E-mail addresses."""
    monthly_usd: float = number(MISSING, 0.01, 10**9, "USD")
    """What a month may cost; told at 80 % and 100 % of it, and when AWS forecasts more."""
    anomaly_usd: float = number(MISSING, 0.01, 10**9, "USD")
    """Told when AWS's anomaly detection finds that costs exceed the usual by so much."""

    def check_together(self) -> None:
        most = rules.BUDGET_SUBSCRIBERS.most
        if not 1 <= len(self.subscribers) <= most:
            raise WrongValueError("subscribers", f"has {len(self.subscribers)} addresses, not 1 to {most}")
        for address in self.subscribers:
            if not re.fullmatch(_EMAIL, address):
                raise WrongValueError("subscribers", f"has {address!r}, no e-mail address")


@dataclass(frozen=True, kw_only=True)
class TracingSettings(Checked):
    """The collector, and what it is told."""

    endpoint: str = word(
        rf"(http://(localhost|127\.0\.0\.1):[0-9]{{1,5}}|https://{_HOST_AND_PORT})(/[A-Za-z0-9_.~-]+)*/?",
        "https:// without credentials, or http://localhost:PORT",
    )
    """Base URL of an OpenTelemetry collector that takes OTLP over HTTP, without credentials."""
    share: float = number(DEFAULT_SHARE, 0, 1, "a share")
    """Share of the events without a `traceparent` that are drawn."""
    collector_layer: str | None = word(
        r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:layer:[A-Za-z0-9_-]+:[0-9]+",
        "the ARN of a layer's version",
        None,
    )
    """Lambda layer that runs the collector beside each function, at `http://localhost:4318`; it holds the
    credentials that a backend asks for."""

    @property
    def of_functions(self) -> function_settings.SpanRecorderSettings:
        """The settings of functions."""
        return function_settings.SpanRecorderSettings(otlp_endpoint=self.endpoint, trace_share=self.share)


@dataclass(frozen=True, kw_only=True)
class DeviceDomain(Checked):
    """A domain of one's own that devices connect to: by DNS they can be led to another region."""

    name: str = word(
        r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]",
        "a domain like devices.example.org",
    )
    """The domain's name, which DNS leads to the account's endpoint (Data-ATS) by a CNAME."""
    certificate: str = word(
        r"arn:aws(-cn|-us-gov)?:acm:[a-z]{2}(-[a-z]+)+-[0-9]:[0-9]{12}:certificate/[a-zA-Z0-9/-]+",
        "a certificate's ARN",
    )
    """ARN of its certificate in AWS Certificate Manager, in the plane's region. A renewed one has the same
    ARN. For another name or ARN deploy without the domain first."""

    @property
    def region(self) -> str:
        """The region that its certificate is in."""
        return self.certificate.split(":")[3]


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(Checked):
    """The location of the channels of an added protocol, and what routers need to write to them."""

    package: str = word(r".*\S.*", "a folder")
    """The folder with the package, its `*.dist-info` and `requirements.txt` with hashes, seen from the
    checkout."""
    url: str = word(rf"[a-z][a-z0-9]{{1,19}}://{_HOST_AND_PORT}", "NAME://HOST:PORT")
    """Where the routers reach it. They run outside of any VPC."""
    secret: str | None = word(r"[A-Za-z0-9/_+=.@-]{1,512}", "the name of a secret", None)
    """Name of the secret in AWS Secrets Manager that the package reads its credentials from; its
    `EVENTPLANE_NAME_SECRET` is set to it. Without it, it needs none."""

    @property
    def name(self) -> str:
        """The name of the protocol in contracts: the scheme of its URLs."""
        return self.url.partition(":")[0]
