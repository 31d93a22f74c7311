"""What is known of one device, and which of two statements about it is the newer one. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from eventplane.traffic import Traffic

RESET_MS: Final = 30 * 60 * 1_000
"""Statements further apart than this are in the order of their time, milliseconds. IoT Core starts a client's
version numbers anew when it was away for about an hour, and its times are right to two minutes (AWS IoT
Developer Guide, lifecycle events): half that hour tells a new count from a late message."""


class Line(StrEnum):
    """Whether a device's connection to IoT Core stands."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What IoT Core said of a connection, at `at_ms` (Unix milliseconds).

    A connection and its end have the same `version` and `session`. `cause` is IoT Core's word for the end.
    """

    line: Line
    at_ms: int
    version: int
    session: str
    cause: str = ""

    def is_newer_than(self, other: Sighting) -> bool:
        """Whether this happened later, in whatever order the two came."""
        if abs(self.at_ms - other.at_ms) >= RESET_MS:
            return self.at_ms > other.at_ms
        if self.version != other.version:
            return self.version > other.version
        if self.session != other.session:
            return (self.at_ms, self.session) > (other.at_ms, other.session)
        return self.line is Line.DISCONNECTED and other.line is Line.CONNECTED


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a device said of itself, received at `at_ms` (Unix milliseconds, by the cloud's clock).

    `epoch` and `sequence` are the device's own numbering; the rest is in seconds.
    """

    at_ms: int
    interval_s: float
    oldest_urgent_s: float = 0.0
    oldest_normal_s: float = 0.0
    epoch: str = ""
    sequence: str = ""

    def is_newer_than(self, other: Heartbeat) -> bool:
        """Whether the device said this later."""
        if self.epoch and self.epoch == other.epoch:
            return self.sequence > other.sequence
        return self.at_ms > other.at_ms


class QuietReason(StrEnum):
    """Why a connected device is not well: no heartbeat came, or an event has waited there for too long."""

    NO_HEARTBEAT = "no_heartbeat"
    BACKLOG_OLD = "backlog_old"


@dataclass(frozen=True, slots=True)
class Quiet:
    """A device was reported as quiet; its last heartbeat before came at `since_ms` (Unix milliseconds)."""

    reason: QuietReason
    since_ms: int


@dataclass(frozen=True, slots=True)
class Flood:
    """A device was reported as flooding since `since_ms` (Unix milliseconds); `window` is the last window in
    which it sent more than its quota."""

    since_ms: int
    window: int


class Level(IntEnum):
    """How bad it is; carers are told again when it gets worse, not when it gets a little better."""

    WELL = 0
    QUIET = 1
    DISCONNECTED = 2


@dataclass(frozen=True, slots=True)
class Incident:
    """What carers know: from the first notice of something wrong to the one that all is well again."""

    id: str
    level: Level
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device. `reported` is what the plane was told last, since `reported_ms` by IoT Core's clock.

    `traffic` is what was counted of it last, if it was loud; `flood` is there while it floods.
    `unsent` are events in JSON format that are decided and not yet known to be sent. `revision` counts the
    writes of the stored item (0: there is none), `due_ms` is when it asks to be looked at again. A device
    that `is_gone` was decommissioned: nothing that is heard of it counts.
    """

    device: str
    revision: int = 0
    due_ms: int | None = None
    sighting: Sighting | None = None
    heartbeat: Heartbeat | None = None
    reported: Line | None = None
    reported_ms: int = 0
    quiet: Quiet | None = None
    incident: Incident | None = None
    traffic: Traffic | None = None
    flood: Flood | None = None
    unsent: tuple[str, ...] = ()
    is_gone: bool = False

    @property
    def level(self) -> Level:
        """How bad it is, by what was reported."""
        if self.reported is Line.DISCONNECTED:
            return Level.DISCONNECTED
        return Level.QUIET if self.quiet else Level.WELL
