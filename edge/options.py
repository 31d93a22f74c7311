"""What the forwarder is told once: who it is, how much may be under way, and what its clocks are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple

from edge.life_clock import Uptime, system_uptime
from edge.pacing import BYTES_PER_S, PUBLISHES_PER_S

LONGEST_DELAY_MS = 300_000
"""The longest `batching_delay_ms` that a contract can have, milliseconds."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` seconds for every interval, `uptime` for the device's life, and the wall clock's `now`.

    `now` is for time stamps only: it jumps.
    """

    monotonic: Callable[[], float] = monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    uptime: Callable[[], Uptime] = system_uptime


class Topics(NamedTuple):
    """Where publishes go: urgent events have a lane of their own, so that nothing waits before them."""

    ordinary: str
    urgent: str

    def of(self, *, urgent: bool) -> str:
        """The topic of one publish."""
        return self.urgent if urgent else self.ordinary


@dataclass(frozen=True, slots=True)
class UplinkLimits:
    """`window` unacknowledged publishes of `payload_bytes` and `batch_events` each; `puback_timeout_s`.

    `single` for one uncompressed event a publish. After `probe_interval_s` without an answer the broker is
    asked for one. No event waits for company longer than `longest_delay_ms`, whatever the contract says.
    """

    window: int
    payload_bytes: int
    batch_events: int
    puback_timeout_s: float
    publishes_per_s: int = PUBLISHES_PER_S
    bytes_per_s: int = BYTES_PER_S
    probe_interval_s: float = 300.0
    single: bool = False
    longest_delay_ms: int = LONGEST_DELAY_MS


@dataclass(frozen=True, slots=True)
class ForwarderOptions:
    """Who we are and how much may be under way; see `edge.settings` for each. `topics` are the cloud's.

    `first_manifest_s` after a start the device states where it stands, also when there is nothing new.
    """

    thing: str
    topics: Topics
    uplink: UplinkLimits
    inbox_window: int
    receipt_timeout_s: float
    stop_grace_s: float
    heartbeat_s: float
    manifest_interval_s: float
    first_manifest_s: float = 60.0
