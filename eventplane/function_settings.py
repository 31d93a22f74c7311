"""The settings of every function, and so the names of all environment variables (`settings.py` says how).

Queues are given by their URLs and tables by their names, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventplane.settings import Settings
from eventplane.traffic import Quota


@dataclass(frozen=True)
class QueueSettings(Settings):
    """Of every function that a queue feeds: `source_queue`."""

    source_queue: str


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
    """Of a router: `source` is the address of the channel that feeds it, `queues` has the URL of each inbox
    by its address."""

    source: str
    queues: Mapping[str, str]
    archive_bucket: str
    tracing: TracingSettings | None = None


@dataclass(frozen=True, kw_only=True)
class ArchiveWriterSettings(Settings):
    """Of the function that archives what devices sent.

    Where presence is monitored, `traffic_queue` takes reports of devices that are loud by `device_quota`.
    """

    archive_bucket: str
    traffic_queue: str | None = None
    device_quota: Quota | None = None
