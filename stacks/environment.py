"""The settings of an environment: everything that may differ between two deployments of the plane."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs

from eventplane import resource_names
from eventplane.contract import Channel, Contract, Participant, ParticipantKind
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.names import DOWNLINK, MONITOR, SUBSCRIBERS
from eventplane.sinks import HTTPS_PORT, MAX_PORT, SinkReach, SinkScope, url_problem
from eventplane_aws.rules import SQS_DELAY, SQS_VISIBILITY
from parts import OPTIONAL, PARTS
from stacks.settings import (
    AlarmSettings,
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
    check_within,
)

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

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")

# It has work only when something fails, and then much of it at once.
_INGEST_ERRORS = FunctionSize(memory_mib=512, timeout_s=30, batch_size=10, max_concurrency=5)

# The longer it gathers, the fewer objects the audit has to open.
_LEDGER_WRITER = FunctionSize(
    memory_mib=512, timeout_s=60, batch_size=1_000, batch_window_s=60, max_concurrency=5
)

# One order a batch, and two functions in all: a replay of a day must not crowd out what is new. The longest
# that Lambda allows, as a file of the tap can hold half a million events.
_REPLAY = FunctionSize(memory_mib=1_024, timeout_s=900, batch_size=1, max_concurrency=2)

# People and starting programs call it; nobody waits in a queue for it.
_SUBSCRIPTIONS_API = FunctionSize(memory_mib=512, timeout_s=20)


def is_posted(participant: Participant) -> bool:
    """Return whether the events of the inbox are posted to endpoints."""
    return participant.inbox.webhook is not None or participant.name == SUBSCRIBERS


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One deployment of the plane.

    Args:
        name: stands in every resource's name.
        account, region: where it may be deployed; None means wherever the credentials lead. An environment
            that keeps data must name both (`check_complete`).
        costs: who is told when it becomes expensive; None: there are no such messages.
        devices: how many it is for. A deployment is refused where the account's quotas do not suffice.
        is_emulated: the cloud is an emulator: it speaks plain HTTP, so that queues and buckets cannot refuse
            it, and it has no roles for the CDK to assume.
        removal_policy: what becomes of stateful resources that leave their stack.
        rollout_minutes: how long a new version of a function gets a tenth of its queues' calls before it gets
            all, one of `ROLLOUT_MINUTES`. A version that fails meanwhile is rolled back by an alarm, which
            costs $0.20 a month for each function. None: all calls at once, without a watch.
        log_retention: how long logs are kept.
        router, device_router, urgent_router, archive_writer, ledger_writer, ingest_errors, replay,
            subscriptions_api, webhook: how the functions run; `device_router` and `urgent_router` are those
            behind the devices' lanes, `router` those of services, and `replay` bounds the pace at which
            events are sent again.
        contract_refresh_s: seconds after which a router looks for a newly published contract and for
            subscriptions, 1 to `MAX_REFRESH_S`.
        webhook_urls: the HTTPS endpoint of each cloud service whose inbox the contract makes a webhook.
        sink_ports: ports of endpoints, those of `webhook_urls` and of subscriptions.
        presence: when something is said of a device, and how the functions run that do.
        downlink: how the functions run that bring events to devices.
        inbox_visibility_s: seconds a consumer has to handle what it received before it comes again, and the
            longest timeout of a function that reads an inbox.
        audit, compaction, erasure: how the Glue jobs run.
        audit_today: when the day so far is audited besides, as AWS Glue writes it; None means never.
        audit_deliveries: whether the audit of a day also lists what became of each event.
        retention: how long the archive keeps what.
        customer_key: ARN of the AWS KMS key for queues, tables, archive, logs, secrets and alarms. It costs
            about $1 a month and $0.03 for 10,000 requests; without it AWS encrypts all but the alarms with
            keys of its own, for nothing. Only with it the customer can see who decrypts, and take it back.
        device_domain: where devices connect instead of to the account's endpoint; None: to that.
        records_reads: whether AWS CloudTrail records who read which object of the archive, in a bucket of its
            own. It costs $1 for a million reads, those of the jobs included.
        alarms: who is told of what fails, and how soon (docs/how-to/operations.md).
        certificate_grace_s: seconds that a certificate stays valid after a connection with its successor.
        certificate_max_age_days: age at which devices renew their certificates, days, as their setting
            `provisioning.max_age_days` has it. A renewal before half of it raises an alarm.
        tracing: where the functions tell the spans of events to (parts/tracing/how-to.md); None: nowhere.
        protocols: those that packages add, for the inboxes that the contract gives to them.
        parts: what the plane has besides what the contract's participants need (`has`).
    """

    name: str
    account: str | None = None
    region: str | None = None
    devices: int = 100
    costs: CostSettings | None = None
    is_emulated: bool = False
    removal_policy: RemovalPolicy
    rollout_minutes: int | None = None
    log_retention: logs.RetentionDays
    router: FunctionSize
    device_router: FunctionSize
    urgent_router: FunctionSize
    archive_writer: FunctionSize
    ledger_writer: FunctionSize = _LEDGER_WRITER
    ingest_errors: FunctionSize = _INGEST_ERRORS
    replay: FunctionSize = _REPLAY
    subscriptions_api: FunctionSize = _SUBSCRIPTIONS_API
    webhook: FunctionSize
    webhook_urls: Mapping[str, str] = field(default_factory=dict)
    sink_ports: tuple[int, ...] = (HTTPS_PORT,)
    contract_refresh_s: int = MAX_REFRESH_S
    presence: PresenceSettings
    downlink: DownlinkSettings
    inbox_visibility_s: int
    audit: JobSize
    audit_today: str | None = None
    audit_deliveries: bool = False
    compaction: JobSize
    erasure: JobSize
    retention: Retention
    customer_key: str | None = None
    device_domain: DeviceDomain | None = None
    records_reads: bool = False
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    certificate_grace_s: int = 900
    certificate_max_age_days: int = 365
    tracing: TracingSettings | None = None
    protocols: tuple[ProtocolSettings, ...] = ()
    parts: frozenset[str] = OPTIONAL

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise EnvironmentSettingError(
                "name", f"is {self.name!r}, not up to 12 lower-case letters and digits"
            )
        if unknown := ", ".join(sorted(self.parts - OPTIONAL)):
            raise EnvironmentSettingError(
                "parts", f"has {unknown}, not only parts to choose: {', '.join(sorted(OPTIONAL))}"
            )
        check_within("contract_refresh_s", self.contract_refresh_s, 1, MAX_REFRESH_S)
        if self.customer_key is not None and not _KEY.fullmatch(self.customer_key):
            raise EnvironmentSettingError("customer_key", f"is {self.customer_key!r}, not a KMS key's ARN")
        self._check_deployment()
        self._check_sinks()
        for setting, least_s in LEAST_TIMEOUT_S.items():
            if attrgetter(setting)(self).timeout_s < least_s:
                raise EnvironmentSettingError(
                    setting,
                    f"has a timeout_s of less than {least_s}; it may never have time to begin",
                )
        check_within("inbox_visibility_s", self.inbox_visibility_s, *INBOX_VISIBILITY_S)
        check_within("certificate_grace_s", self.certificate_grace_s, 0, SQS_DELAY.most)
        check_within("certificate_max_age_days", self.certificate_max_age_days, 1, 36_500)

    def _check_deployment(self) -> None:
        """Check how it is deployed, and for how many. Raises `EnvironmentSettingError`."""
        if self.rollout_minutes is not None and self.rollout_minutes not in ROLLOUT_MINUTES:
            raise EnvironmentSettingError(
                "rollout_minutes",
                f"is {self.rollout_minutes}, none of {', '.join(map(str, ROLLOUT_MINUTES))}",
            )
        if self.rollout_minutes is not None and self.is_emulated:
            raise EnvironmentSettingError("rollout_minutes", "is set, and the emulator has no CodeDeploy")
        if self.costs is not None and self.is_emulated:
            raise EnvironmentSettingError("costs", "is set, and an emulated cloud costs nothing")
        if self.device_domain and self.is_emulated:
            raise EnvironmentSettingError("device_domain", "is set, and an emulated cloud has no names")
        if self.device_domain and self.region not in (None, self.device_domain.region):
            raise EnvironmentSettingError(
                "device_domain.certificate",
                f"is of {self.device_domain.region}, and the plane of {self.region}",
            )
        if self.devices < 1:
            raise EnvironmentSettingError("devices", f"is {self.devices}, not 1 or more")

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
        """Check where functions may post to. Raises `EnvironmentSettingError`."""
        if self.is_emulated and self.keeps_data:
            raise EnvironmentSettingError(
                "is_emulated", "is set where data is kept; an emulated cloud posts to any address"
            )
        if not self.sink_ports or not all(0 < each <= MAX_PORT for each in self.sink_ports):
            raise EnvironmentSettingError(
                "sink_ports", f"is {self.sink_ports}, not ports from 1 to {MAX_PORT}"
            )
        for participant, url in self.webhook_urls.items():
            if problem := url_problem(url, is_emulated=self.is_emulated, ports=self.sink_ports):
                raise EnvironmentSettingError(f"webhook_urls[{participant!r}]", problem)

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
    def keeps_data(self) -> bool:
        """True if its stateful resources outlive their stack."""
        return self.removal_policy is not RemovalPolicy.DESTROY

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
