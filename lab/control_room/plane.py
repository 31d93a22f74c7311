"""The control room's interface to a plane: its state, alarms to send and faults to inject."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lab.control_room.tally import Counters, Followed, TallyLatency


class Stage(StrEnum):
    """A stage of an event's way, in order."""

    HOME = "home"
    BROKER = "broker"
    FORWARDER = "forwarder"
    RULE = "rule"
    ROUTERS = "routers"
    INBOXES = "inboxes"
    ARCHIVE = "archive"


class RoomFault(StrEnum):
    """The faults that the page can inject."""

    NETWORK = "network"
    FORWARDER = "forwarder"
    MOSQUITTO = "mosquitto"
    ROUTER = "router"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class StageStanding:
    """The state of a stage: `passed` events since the start, `waiting` messages in it now (None: unknown).

    `is_up` is False while its process is down or its calls fail; `note` describes its state in a few words.
    """

    is_up: bool = True
    passed: int | None = None
    waiting: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A plane in one moment. `active` are the faults in force; `events` the last ones, the newest first.

    `commands` is what one can type against this plane: what it does, and the line.
    """

    contract: str
    home: str
    stages: dict[Stage, StageStanding]
    counters: Counters
    latency: TallyLatency
    active: Collection[RoomFault] = ()
    events: tuple[Followed, ...] = ()
    commands: dict[str, str] = field(default_factory=dict)


class PlaneView(Protocol):
    """A running plane. Each method may be called by several threads, and returns without waiting for effects.

    Each may raise `LocalError` or `EventPlaneError`; the page shows its message.
    """

    def state(self) -> State:
        """Return the present state."""

    def send_alarm(self) -> str:
        """Publish an alarm at the home's broker, once that is up, and return the event's id."""

    def strike(self, fault: RoomFault) -> None:
        """Start a fault (idempotent)."""

    def heal(self, fault: RoomFault) -> None:
        """End a lasting fault (idempotent)."""
