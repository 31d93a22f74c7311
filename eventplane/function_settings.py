"""The settings of every function, and so the names of all environment variables (`settings.py` says how).

Queues are given by their URLs and tables by their names, unless the setting says otherwise. The text below a
field is its meaning in docs/reference/settings.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventplane.contract import Priority
from eventplane.settings import Settings
from eventplane.traffic import Quota


@dataclass(frozen=True)
class MetricsSettings(Settings):
    """Settings of every function."""

    metrics_service: str
    """The dimension `service` of its metrics."""


@dataclass(frozen=True)
class QueueSettings(Settings):
    """Settings of every function that a queue feeds."""

    source_queue: str
    """The queue that feeds the function; of one that several feed, with `*` for what their names end in."""


@dataclass(frozen=True, kw_only=True)
class IngestErrorsSettings(Settings):
    """Settings of the function that handles failures of the ingest rules."""

    ways_in: tuple[str, ...]
    """The queues that the rules write to."""
    letters_to: tuple[str, ...]
    """The queues for a dead letter."""
    source: str
    """The address of the channel that feeds the function."""
    contract: str
    """The version of the deployed contract."""


@dataclass(frozen=True, kw_only=True)
class ContractSettings(Settings):
    """Settings of every function that follows the contract in force."""

    contracts_table: str
    """The table of published contracts."""
    subscriptions_table: str
    """The table of subscriptions."""
    interest_table: str
    """The table of announced interest."""
    contract_refresh_s: int
    """How long the function uses what it read from these tables, seconds."""


@dataclass(frozen=True, kw_only=True)
class SpanRecorderSettings(Settings):
    """Settings of the functions that record spans."""

    otlp_endpoint: str
    """The collector's base URL."""
    trace_share: float
    """The share of events that are sampled, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class RouterSettings(ContractSettings):
    """Settings of a router."""

    source: str
    """The address of the channel that feeds the function; `*`: the outboxes of services, by their queues."""
    priority: Priority
    """The priority of what feeds the function."""
    queues: Mapping[str, str]
    """The URL of each inbox by its address; that of `*`, with `*` for the queue, is of all others."""
    ledger_queue: str
    """Where the router sends its decisions."""
    archive_bucket: str
    """The archive's bucket."""
    tracing: SpanRecorderSettings | None = None


@dataclass(frozen=True)
class LedgerWriterSettings(Settings):
    """Settings of the function that archives the routers' decisions, and readers' receipts."""

    archive_bucket: str
    """The archive's bucket."""
    receipts_of: Mapping[str, str] | None = None
    """The inbox that the receipts of a queue are about, by the name of the queue."""


@dataclass(frozen=True, kw_only=True)
class ArchiveWriterSettings(Settings):
    """Settings of the function that archives what devices sent."""

    archive_bucket: str
    """The archive's bucket."""
    traffic_queue: str | None = None
    """Where presence is monitored: the queue for reports of devices that exceed `device_quota`."""
    device_quota: Quota | None = None
    """The traffic of a device that is reported."""


@dataclass(frozen=True, kw_only=True)
class DownlinkFunctionSettings(Settings):
    """Settings of the functions that bring events to devices."""

    desired_table: str
    """The table of desired states."""
    presence_table: str
    """The table of presence."""
    fleet_table: str
    """The table of the fleet's registry."""
    work_queue: str
    """The queue of the functions' own work."""
    outbox_queue: str
    """The queue for dead letters."""
    dead_letter_queue: str
    """The queue for dead letters about dead letters."""


@dataclass(frozen=True, kw_only=True)
class UplinkInterestSettings(Settings):
    """Settings of the function that sends the cloud's interest to devices."""

    contracts_table: str
    """The table of published contracts."""
    subscriptions_table: str
    """The table of subscriptions."""
    desired_table: str
    """The table of desired states."""
    outbox_queue: str
    """The queue that the function sends to."""
