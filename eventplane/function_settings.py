"""The settings of every function, and so the names of all environment variables (`settings.py` says how).

Queues are given by their URLs and tables by their names, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from eventplane.contract import Priority
from eventplane.settings import Settings, SettingsError, variable_of
from eventplane.traffic import Quota
from eventplane.webhooks import SinkReach


@dataclass(frozen=True)
class MetricsSettings(Settings):
    """Of every function: the dimension `service` of its metrics."""

    metrics_service: str


@dataclass(frozen=True)
class QueueSettings(Settings):
    """Of every function that a queue feeds: `source_queue`."""

    source_queue: str


@dataclass(frozen=True, kw_only=True)
class CanarySettings(Settings):
    """Of the canary: the MQTT topic that its alarms go to, the inbox that they come to, and what the names of
    all queues of the environment begin with."""

    ingest_topic: str
    inbox_queue: str
    queue_prefix: str


@dataclass(frozen=True, kw_only=True)
class IngestErrorsSettings(Settings):
    """Of the function that handles failures of the ingest rules.

    `ways_in` are the queues that rules write to, `letters_to` those for a dead letter. `source` is the
    address of the devices' outbox, `contract` the version of the deployed contract.
    """

    ways_in: tuple[str, ...]
    letters_to: tuple[str, ...]
    source: str
    contract: str


@dataclass(frozen=True)
class RegistrySettings(Settings):
    """Of the functions that register devices: the table of the fleet's registry."""

    fleet_table: str


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings(RegistrySettings):
    """Of the function that writes the registry's devices in service into the archive."""

    archive_bucket: str


@dataclass(frozen=True, kw_only=True)
class CertificateSettings(RegistrySettings):
    """Of certificate rotation: what the ARNs of certificates start with, and how long a replaced certificate
    stays active, seconds."""

    certificate_arns: str
    certificate_grace_s: int


@dataclass(frozen=True, kw_only=True)
class ContractSettings(Settings):
    """Of every function that follows the contract in force: the tables of published contracts, of
    subscriptions and of announced interest; all are read again every `contract_refresh_s` seconds."""

    contracts_table: str
    subscriptions_table: str
    interest_table: str
    contract_refresh_s: int


@dataclass(frozen=True, kw_only=True)
class TracingSettings(Settings):
    """Where spans go: the collector's base URL, and the share (0 to 1) of events that are sampled."""

    otlp_endpoint: str
    trace_share: float


@dataclass(frozen=True, kw_only=True)
class RouterSettings(ContractSettings):
    """Of a router: `source` is the address of the channel that feeds it, at a `priority`; `queues` has the
    URL of each inbox by its address. Decisions go to the `ledger_queue`, or else to the `archive_bucket`."""

    source: str
    priority: Priority
    queues: Mapping[str, str]
    ledger_queue: str
    archive_bucket: str
    tracing: TracingSettings | None = None


@dataclass(frozen=True)
class LedgerWriterSettings(Settings):
    """Of the function that archives what routers decided."""

    archive_bucket: str


@dataclass(frozen=True, kw_only=True)
class ArchiveWriterSettings(Settings):
    """Of the function that archives what devices sent.

    Where presence is monitored, `traffic_queue` takes reports of devices that are loud by `device_quota`.
    """

    archive_bucket: str
    traffic_queue: str | None = None
    device_quota: Quota | None = None


@dataclass(frozen=True, kw_only=True)
class HttpSinkSettings(Settings):
    """Of every function that posts to HTTPS endpoints, which are within `reach`.

    `webhook_secret` is the name of the secret with the signing keys, `webhook_origin` names the sender. Dead
    letters go to `outbox_queue`, and those that are about dead letters to `dead_letter_queue`. `concurrency`
    processes share the rate of an endpoint.
    """

    reach: SinkReach
    webhook_secret: str
    webhook_origin: str
    outbox_queue: str
    dead_letter_queue: str
    concurrency: int
    archive_bucket: str

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise SettingsError(variable_of("concurrency"), f"is {self.concurrency}, not 1 or more")


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(HttpSinkSettings):
    """Of a webhook: `source` is the address of the inbox, `webhook_url` the endpoint."""

    source: str
    webhook_url: str


@dataclass(frozen=True, kw_only=True)
class SubscribersSettings(HttpSinkSettings):
    """Of the function that posts to subscribed endpoints."""

    subscriptions_table: str


@dataclass(frozen=True, kw_only=True)
class SubscriptionsApiSettings(ContractSettings):
    """Of the Subscriptions API: `inboxes` has the ARN of the inbox queue of each participant that may use it.

    The others are as in `HttpSinkSettings`.
    """

    inboxes: Mapping[str, str]
    webhook_origin: str
    webhook_secret: str
    reach: SinkReach


@dataclass(frozen=True, kw_only=True)
class DownlinkSettings(Settings):
    """Of the functions that bring events to devices: the tables of desired states, of presence and of the
    fleet, and the queue of their own work.

    Dead letters go to `outbox_queue`, and those that are about dead letters to `dead_letter_queue`.
    """

    desired_table: str
    presence_table: str
    fleet_table: str
    work_queue: str
    outbox_queue: str
    dead_letter_queue: str


@dataclass(frozen=True, kw_only=True)
class UplinkInterestSettings(Settings):
    """Of the function that tells devices what the cloud wants of them, through `outbox_queue`."""

    contracts_table: str
    subscriptions_table: str
    desired_table: str
    outbox_queue: str


@dataclass(frozen=True, kw_only=True)
class PresenceLimits:
    """When something is reported of a device, seconds but for `quiet_after_heartbeats`, and what floods.

    `PresenceSettings` of the stacks explain each.
    """

    disconnected_after_s: float
    connected_after_s: float
    quiet_after_heartbeats: float
    oldest_urgent_s: float
    oldest_normal_s: float
    quota: Quota


class PresenceSource(StrEnum):
    """What a recorder reads: lifecycle messages of IoT Core, or the heartbeats of devices."""

    CONNECTIONS = "connections"
    HEARTBEATS = "heartbeats"


@dataclass(frozen=True, kw_only=True)
class PresenceSettings(Settings):
    """Of every function that monitors presence."""

    presence_table: str
    presence_limits: PresenceLimits
    timer_queue: str


@dataclass(frozen=True, kw_only=True)
class RecorderSettings(PresenceSettings):
    """Of the functions that record what is said of devices."""

    source: PresenceSource


@dataclass(frozen=True, kw_only=True)
class PresenceJudgeSettings(PresenceSettings):
    """Of the functions that judge devices, and report to `outbox_queue`."""

    outbox_queue: str
