"""The settings of the fleet's functions."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.settings import Settings


@dataclass(frozen=True)
class RegistrySettings(Settings):
    """Settings of the functions that register devices."""

    fleet_table: str
    """The table of the fleet's registry."""


@dataclass(frozen=True, kw_only=True)
class HookSettings(RegistrySettings):
    """Settings of the function that allows registrations."""

    certificate_max_age_days: int
    """Age at which devices renew their certificates, days."""
    connections_queue: str | None = None
    """The queue of the certificate keeper. Code that is deployed before its settings has none for a moment:
    what the claim registered beyond what may wait then ends after the device's next connection."""
    outbox_queue: str | None = None
    """The queue for reports of devices."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings(RegistrySettings):
    """Settings of the function that writes the devices in service into the archive."""

    archive_bucket: str
    """The archive's bucket."""


@dataclass(frozen=True, kw_only=True)
class CertificateSettings(RegistrySettings):
    """Settings of certificate rotation."""

    certificate_arns: str
    """What the ARNs of certificates start with."""
    certificate_grace_s: int
    """How long a replaced certificate stays active, seconds."""
    outbox_queue: str | None = None
    """The queue for reports of devices."""
