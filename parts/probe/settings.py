"""The settings of the canary."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.settings import Settings


@dataclass(frozen=True, kw_only=True)
class CanarySettings(Settings):
    """Settings of the canary."""

    ingest_rule: str
    """The IoT rule that devices publish to; its alarms go to the urgent one beside it."""
    device_policy: str
    """The IoT policy of devices."""
    identity_secret: str
    """The name of the secret with its key and certificate."""
    inbox_queue: str
    """The inbox that its alarms come to."""
    queue_prefix: str
    """What the names of all queues of the environment begin with."""
    late_ms: int
    """The delay beyond which an alarm is missed, milliseconds."""
    device_endpoint: str | None = None
    """Where devices connect, HOST or HOST:PORT; by default the account's endpoint."""
    device_ca: str | None = None
    """A file with the authorities that devices trust; by default those of the AWS SDK."""
