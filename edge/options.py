"""What the forwarder is told once: who it is, how much may be under way, and what its clocks are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from edge.life_clock import Uptime, system_uptime
from edge.uplink import Topics, UplinkLimits


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` seconds for every interval, `uptime` for the device's life, and the wall clock's `now`.

    `now` is for time stamps only: it jumps.
    """

    monotonic: Callable[[], float] = monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    uptime: Callable[[], Uptime] = system_uptime


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
