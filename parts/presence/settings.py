"""The settings of the monitor's functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eventplane.presence import PresenceLimits
from eventplane.settings import Settings


class PresenceSource(StrEnum):
    """The input of a recorder: lifecycle messages of IoT Core, or the heartbeats of devices."""

    CONNECTIONS = "connections"
    HEARTBEATS = "heartbeats"


@dataclass(frozen=True, kw_only=True)
class PresenceFunctionSettings(Settings):
    """Settings of every function that monitors presence."""

    presence_table: str
    """The table of presence."""
    presence_limits: PresenceLimits
    """When something is reported of a device, and what floods."""
    timer_queue: str
    """The queue of the timers by which a device is judged later."""


@dataclass(frozen=True, kw_only=True)
class RecorderSettings(PresenceFunctionSettings):
    """Settings of the functions that record what is known of devices."""

    source: PresenceSource
    """What the function reads."""


@dataclass(frozen=True, kw_only=True)
class PresenceJudgeSettings(PresenceFunctionSettings):
    """Settings of the functions that judge devices."""

    outbox_queue: str
    """The queue for reports of devices."""
