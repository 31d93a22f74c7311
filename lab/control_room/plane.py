"""The control room's interface to a plane: its state, events to send, faults to inject, questions to ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from contract.offers import Offer
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


QUESTIONS: Final = {
    "audit": ("audit run all", 0),
    "trace": ("trace --follow --timeout 10 --", 2),
    "letters": ("dead-letters list --json", 0),
    "show": ("dead-letters show --queue", 1),
    "show-archived": ("dead-letters show --archived", 0),
    "redrive": ("dead-letters redrive --all --queue", 1),
    "redrive-letters": ("dead-letters redrive --all --letters", 0),
}
"""The commands of `eventplane` that the page runs, each with how many words it adds: ids, names of queues."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to a question: the command `line` that was run, its exit `status`, and what it printed."""

    line: str
    status: int
    output: str


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

    `readers` has each inbox that the plane's own functions do not read, and whether the room reads it now.
    `commands` is what one can type against this plane: what it does, and the line. `rollout` says in lines
    how the roll-out of a contract stands, or stood last.
    """

    contract: str
    home: str
    stages: dict[Stage, StageStanding]
    counters: Counters
    latency: TallyLatency
    active: Collection[RoomFault] = ()
    events: tuple[Followed, ...] = ()
    readers: Mapping[str, bool] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    rollout: tuple[str, ...] = ()


class PlaneView(Protocol):
    """A running plane. Each method may be called by several threads, and returns without waiting for effects.

    Each may raise `LocalError` or `EventPlaneError`; the page shows its message.
    """

    def state(self) -> State:
        """Return the present state."""

    def offers(self) -> tuple[Offer, ...]:
        """Return an event of each type and sender of the contract in force."""

    def send(self, sender: str, event: Mapping[str, Any]) -> str:
        """Send `event` as `sender`, with an id and times where it has none, and return its id.

        Nothing is checked but that it is an event: what becomes of it shows what the plane refuses.
        """

    def read(self, participant: str, *, is_read: bool) -> None:
        """Read the inbox of `participant` as its program would, or no longer (idempotent)."""

    def ask(self, question: str, words: Sequence[str]) -> CommandResult:
        """Run the command of `QUESTIONS`, and return when it has ended."""

    def strike(self, fault: RoomFault) -> None:
        """Start a fault (idempotent)."""

    def heal(self, fault: RoomFault) -> None:
        """End a lasting fault (idempotent)."""
