"""The settings of an environment: everything that may differ between two deployments of the plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from eventplane import resource_names
from eventplane.contract import Channel, Contract, Participant, ParticipantKind
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.fields import choice, flag, whole, word
from eventplane.names import DOWNLINK, MONITOR, SUBSCRIBERS
from eventplane.settings import WrongValueError
from eventplane.sinks import HTTPS_PORT, MAX_PORT, SinkReach, SinkScope, url_problem
from eventplane_aws.rules import SQS_DELAY, SQS_VISIBILITY
from parts import OPTIONAL, PARTS
from stacks.settings import (
    AlarmSettings,
    Checked,
    CostSettings,
    DeviceDomain,
    DownlinkSettings,
    EnvironmentSettingError,
    FunctionSize,
    IncompleteEnvironmentError,
    JobSize,
    PresenceSettings,
    ProtocolSettings,
    Retention,
    TracingSettings,
)

if TYPE_CHECKING:
    from aws_cdk import RemovalPolicy
    from aws_cdk import aws_logs as logs

PROJECT: Final = resource_names.PROJECT
"""What all names of resources start with."""

WEBHOOK_TIMEOUT_S: Final = 60
"""Least timeout of a webhook function, seconds: the longest attempt that a contract may ask for (30), and
what has to be done after it at its slowest (18)."""

LEAST_TIMEOUT_S: Final = {
    "router": 30,
    "device_router": 30,
    "urgent_router": 12,
    "replay": 30,
    "archive_writer": 30,
    "ledger_writer": 20,
    "ingest_errors": 20,
    "webhook": WEBHOOK_TIMEOUT_S,
    "presence.recorder": 20,
    "presence.timers": 30,
    "presence.reconciler": 30,
    "downlink.reader": 20,
    "downlink.reconciler": 20,
}
"""Least timeouts of functions by their setting, seconds. A function begins nothing without the time that it
may take at its slowest (`TimeLimits`, `RESERVE_MS`): with a much shorter timeout it would never begin."""

INBOX_VISIBILITY_S: Final = (2, SQS_VISIBILITY.most)
"""Least and most `inbox_visibility_s`. A function runs no longer than its queue's visibility timeout (AWS
Lambda guide for SQS), and claims of the client library outlive it by 5 s. All claims must have ended by
the last of the 5 receives that a contract gives at least: 4 times 2 s > 2 s + 5 s."""

MAX_REFRESH_S: Final = IN_FORCE_S // 3
"""Most `contract_refresh_s`: a subscription is in force in time although two looks in a row fail."""

ROLLOUT_MINUTES: Final = (5, 10, 15, 30)
"""The roll-outs that CodeDeploy has ready-made: a tenth of the calls at first, all after so many minutes."""

LOG_RETENTION: Final = (
    "one_day", "three_days", "five_days", "one_week", "two_weeks", "one_month", "two_months", "three_months",
    "four_months", "five_months", "six_months", "one_year", "thirteen_months", "eighteen_months", "two_years",
    "three_years", "five_years", "ten_years", "infinite",
)  # fmt: skip
"""How long CloudWatch may keep logs (of the choices of its API)."""


def is_posted(participant: Participant) -> bool:
    """Return whether the events of the inbox are posted to endpoints."""
    return participant.inbox.webhook is not None or participant.name == SUBSCRIBERS


@dataclass(frozen=True, kw_only=True)
class Environment(Checked):
    """One deployment of the plane."""

    name: str = word(r"[a-z][a-z0-9]{0,11}", "up to 12 lower-case letters and digits, a letter first")
    """Stands in every resource's name; the file's table has it as its own."""
    account: str | None = word(r"[0-9]{12}", "an account's number, 12 digits", None)
    """Account where it may be deployed; without it wherever the credentials lead. An environment that keeps
    data must name it."""
    region: str | None = word(r"[a-z]{2}(-[a-z]+)+-[0-9]", "a region like eu-central-1", None)
    """Region where it may be deployed; as `account`."""
    devices: int = whole(100, 1, 10**9, "devices")
    """How many it is for. A deployment is refused where the account's quotas do not suffice."""
    costs: CostSettings | None = None
    """Who is told when it becomes expensive; without it there are no such messages."""
    is_emulated: bool = flag(False)
    """The cloud is an emulator: it speaks plain HTTP, so that queues and buckets cannot refuse it, and it has
    no roles for the CDK to assume."""
    keeps_data: bool = flag(MISSING)
    """Whether stateful resources outlive their stack. One that a first deployment made is removed if that
    fails: kept, it would take the name."""
    rollout_minutes: int | None = whole(None, 5, 30, "minutes")
    """How long a new version of a function gets a tenth of its queues' calls before it gets all: 5, 10, 15 or
    30. A version that fails meanwhile is rolled back by an alarm, which costs $0.20 a month for each
    function. Without it all calls at once, without a watch."""
    log_retention: str = choice(MISSING, LOG_RETENTION)
    """How long logs are kept."""
    router: FunctionSize
    """How the router of services runs."""
    device_router: FunctionSize
    """How the router of what is not urgent of devices runs."""
    urgent_router: FunctionSize
    """How the router of what is urgent runs."""
    archive_writer: FunctionSize
    """How the function runs that archives what devices sent."""
    ledger_writer: FunctionSize
    """How the function runs that archives the routers' decisions."""
    ingest_errors: FunctionSize
    """How the function runs that handles failures of the ingest rules."""
    replay: FunctionSize
    """How the function runs that sends events again; it bounds the pace."""
    subscriptions_api: FunctionSize
    """How the Subscriptions API runs."""
    webhook: FunctionSize
    """How the functions run that post events to endpoints."""
    webhook_urls: Mapping[str, str] = field(default_factory=dict)
    """The HTTPS endpoint of each cloud service whose inbox the contract makes a webhook."""
    sink_ports: tuple[int, ...] = (HTTPS_PORT,)
    """Ports of endpoints, those of `webhook_urls` and of subscriptions."""
    contract_refresh_s: int = whole(MAX_REFRESH_S, 1, MAX_REFRESH_S, "seconds")
    """Time after which a router looks for a newly published contract and for subscriptions."""
    presence: PresenceSettings
    """When something is said of a device, and how the functions run that do."""
    downlink: DownlinkSettings
    """How the functions run that bring events to devices."""
    inbox_visibility_s: int = whole(MISSING, *INBOX_VISIBILITY_S, "seconds")
    """Time that a consumer has to handle what it received before it comes again, and the longest timeout of a
    function that reads an inbox."""
    audit: JobSize
    """How the audit runs."""
    audit_today: str | None = word(r"(cron|rate)\(.+\)", "cron(...) or rate(...)", None)
    """When the day so far is audited besides, as AWS Glue writes it; without it never."""
    audit_deliveries: bool = flag(False)
    """Whether the audit of a day also lists what became of each event."""
    compaction: JobSize
    """How the compaction runs."""
    erasure: JobSize
    """How the erasure runs."""
    retention: Retention
    """How long the archive keeps what."""
    customer_key: str | None = word(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+", "a KMS key's ARN", None
    )
    """AWS KMS key for queues, tables, archive, logs, secrets and alarms. It costs about $1 a month and $0.03
    for 10,000 requests; without it AWS encrypts all but the alarms with keys of its own, for nothing. Only
    with it the customer can see who decrypts, and take it back."""
    device_domain: DeviceDomain | None = None
    """Where devices connect instead of to the account's endpoint."""
    records_reads: bool = flag(False)
    """Whether AWS CloudTrail records who read which object of the archive, in a bucket of its own. It costs
    $1 for a million reads, those of the jobs included."""
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    """Who is told of what fails, and how soon (docs/how-to/operations.md)."""
    certificate_grace_s: int = whole(900, 0, SQS_DELAY.most, "seconds")
    """Time that a certificate stays valid after a connection with its successor."""
    certificate_max_age_days: int = whole(365, 1, 36_500, "days")
    """Age at which devices renew their certificates, as their setting `provisioning.max_age_days` has it. A
    renewal before half of it raises an alarm."""
    tracing: TracingSettings | None = None
    """Where the functions tell the spans of events to (parts/tracing/how-to.md); without it nowhere."""
    protocols: tuple[ProtocolSettings, ...] = ()
    """Those that packages add, for the inboxes that the contract gives to them."""
    parts: frozenset[str] = OPTIONAL
    """What the plane has besides what the contract's participants need, by default all."""

    def check_together(self) -> None:
        if unknown := ", ".join(sorted(self.parts - OPTIONAL)):
            raise WrongValueError(
                "parts", f"has {unknown}, not only parts to choose: {', '.join(sorted(OPTIONAL))}"
            )
        self._check_deployment()
        self._check_sinks()
        for setting, least_s in LEAST_TIMEOUT_S.items():
            if attrgetter(setting)(self).timeout_s < least_s:
                raise WrongValueError(
                    setting,
                    f"has a timeout_s of less than {least_s}; it may never have time to begin",
                )

    def _check_deployment(self) -> None:
        """Check how it is deployed, and for how many. Raises `WrongValueError`."""
        if self.rollout_minutes is not None and self.rollout_minutes not in ROLLOUT_MINUTES:
            raise WrongValueError(
                "rollout_minutes",
                f"is {self.rollout_minutes}, none of {', '.join(map(str, ROLLOUT_MINUTES))}",
            )
        if self.rollout_minutes is not None and self.is_emulated:
            raise WrongValueError("rollout_minutes", "is set, and the emulator has no CodeDeploy")
        if self.costs is not None and self.is_emulated:
            raise WrongValueError("costs", "is set, and an emulated cloud costs nothing")
        if self.device_domain and self.is_emulated:
            raise WrongValueError("device_domain", "is set, and an emulated cloud has no names")
        if self.device_domain and self.region not in (None, self.device_domain.region):
            raise WrongValueError(
                "device_domain.certificate",
                f"is of {self.device_domain.region}, and the plane of {self.region}",
            )

    def has(self, part: str, contract: Contract) -> bool:
        """Return whether the plane of `contract` has `part`: it is asked for, or a participant needs it."""
        return part in self.parts or PARTS[part].is_needed_by(contract)

    def check_complete(self) -> None:
        """Check what only an operator knows: where data that is kept is deployed, and who is paged.

        Raises `IncompleteEnvironmentError`. It is no check of the value itself, so that the settings of an
        environment can be read before somebody has filled them in.
        """
        if not self.keeps_data:
            return
        needed = {
            "account": self.account,
            "region": self.region,
            "alarms.page_subscribers": self.alarms.page_subscribers,
        }
        if missing := tuple(setting for setting, value in needed.items() if not value):
            raise IncompleteEnvironmentError(self.name, missing)

    def with_placeholders(self) -> Environment:
        """Return it with placeholders for what `check_complete` misses: for templates that nobody deploys."""
        return replace(
            self,
            account=self.account or "123456789012",
            region=self.region or "eu-central-1",
            alarms=replace(
                self.alarms, page_subscribers=self.alarms.page_subscribers or ("pager@example.org",)
            ),
        )

    def _check_sinks(self) -> None:
        """Check where functions may post to. Raises `WrongValueError`."""
        if self.is_emulated and self.keeps_data:
            raise WrongValueError(
                "is_emulated", "is set where data is kept; an emulated cloud posts to any address"
            )
        if not self.sink_ports or not all(0 < each <= MAX_PORT for each in self.sink_ports):
            raise WrongValueError("sink_ports", f"is {self.sink_ports}, not ports from 1 to {MAX_PORT}")
        for participant, url in self.webhook_urls.items():
            if problem := url_problem(url, is_emulated=self.is_emulated, ports=self.sink_ports):
                raise WrongValueError(f"webhook_urls[{participant!r}]", problem)

    def visibility_s_of(self, participant: Participant) -> int:
        """Return how long the queue of an inbox hides a message; functions of the plane need their own."""
        if participant.name == MONITOR:
            return self.presence.recorder.visibility_s
        if participant.name == DOWNLINK or participant.kind is ParticipantKind.DEVICE:
            return self.downlink.reader.visibility_s
        return self.webhook.visibility_s if is_posted(participant) else self.inbox_visibility_s

    @property
    def sink_reach(self) -> SinkReach:
        """The addresses that endpoints may have; only an emulated cloud posts anywhere."""
        return SinkReach(SinkScope.ANYWHERE if self.is_emulated else SinkScope.INTERNET, self.sink_ports)

    def check_urls(self, contract: Contract) -> None:
        """Check that every webhook and every added protocol of `contract` has its URL here.

        Raises `EnvironmentSettingError`.
        """
        for channel in contract.channels:
            if channel.webhook:
                self.webhook_url(channel.participant)
            elif channel.is_added_protocol:
                self.channel_url(channel)

    def webhook_url(self, participant: str) -> str:
        """Return the endpoint of the webhook of `participant`. Raises `EnvironmentSettingError`."""
        if participant not in self.webhook_urls:
            raise EnvironmentSettingError(
                f"webhook_urls of {self.name}",
                f"has no URL for {participant}, whose inbox is a webhook in the contract",
            )
        return self.webhook_urls[participant]

    def channel_url(self, channel: Channel) -> str:
        """Return the URL of `channel`, which no queue carries. Raises `EnvironmentSettingError`."""
        for each in self.protocols:
            if each.name == channel.transport:
                return f"{each.url}/{self.resource_name(resource_names.channel_queue(channel))}"
        raise EnvironmentSettingError(
            f"protocols of {self.name}",
            f"has none for {channel.transport}, over which the contract has {channel.address}",
        )

    @property
    def removal_policy(self) -> RemovalPolicy:
        """The fate of stateful resources that leave their stack."""
        from aws_cdk import RemovalPolicy  # which takes seconds to start; settings are read without it

        return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if self.keeps_data else RemovalPolicy.DESTROY

    @property
    def retention_of_logs(self) -> logs.RetentionDays:
        """The time for which logs are kept."""
        from aws_cdk import aws_logs as logs

        return logs.RetentionDays[self.log_retention.upper()]

    @property
    def is_released(self) -> bool:
        """True if functions that read queues are called by an alias of a version.

        Not in the emulator: tests and benchmarks change the variables of functions that are deployed, and a
        version keeps those that it was published with.
        """
        return not self.is_emulated

    def resource_name(self, suffix: str) -> str:
        """Return the name of a resource in this environment, by the convention that all stacks share."""
        return resource_names.resource_name(self.name, suffix)
