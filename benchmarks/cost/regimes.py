"""The three ways in which devices send, each published for real."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from time import sleep
from typing import Final

from benchmarks.cloud.device import Device
from benchmarks.cloud.events import ALARM, ALARM_INBOXES, DOOR, DOOR_INBOXES, event
from eventplane.batch import pack_texts
from stacks.config import ENVIRONMENTS

PRODUCTION: Final = ENVIRONMENTS["prod"]

BATCH: Final = 250
"""What the forwarder packs at most by default."""

ROUTER: Final = "router-device"
ARCHIVE_WRITER: Final = "archive-writer"

_TAP: Final = {ARCHIVE_WRITER: PRODUCTION.archive_writer.batch_size}
"""In production it gathers for a minute."""

_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """`events` of `type` to its two `inboxes`, `batch` of them a publish, at `per_s` publishes a second.

    `held` are functions that start when all is sent, with the messages a batch that they may then take: what
    a batching window makes of a run, as the emulator has none. It hands out ten at a time all the same: their
    invocations and objects are counted as so many fewer, their time is not.
    """

    name: str
    type: str
    inboxes: tuple[str, ...]
    events: int
    batch: int
    per_s: float
    held: Mapping[str, int]
    aim: float | None
    note: str

    def payloads(self) -> Iterator[bytes]:
        """What the device publishes, compressed as the forwarder does it."""
        for sent in range(0, self.events, self.batch):
            size = min(self.batch, self.events - sent)
            yield pack_texts(event(f"{self.name}{next(_NUMBERS)}", self.type) for _ in range(size))

    def play(self, device: Device) -> list[bytes]:
        """Publish all, at its pace; what was published."""
        published = []
        for payload in self.payloads():
            device.publish(payload, urgent=self.type == ALARM)
            published.append(payload)
            sleep(1 / self.per_s)
        return published


def regimes(scale: float) -> list[Regime]:
    """All of them; `scale` 1 is the full size."""
    bulk = Regime(
        name="bulk",
        type=DOOR,
        inboxes=DOOR_INBOXES,
        events=max(1, round(80 * scale)) * BATCH,
        batch=BATCH,
        per_s=20,
        held=_TAP,
        aim=0.15,
        note=f"full batches of {BATCH}, as a backlog drains",
    )
    trickle = replace(
        bulk,
        name="trickle",
        events=round(1_200 * scale),
        batch=1,
        aim=0.60,
        note="1,200 devices with one event a minute each: 20 publishes/s of one event",
    )
    return [
        bulk,
        trickle,
        replace(
            trickle,
            name="trickle_window",
            held={**_TAP, ROUTER: 100},
            note="trickle, had the router a batching window of 5 s and 100 messages a batch: no setting yet",
        ),
        Regime(
            name="alarm",
            type=ALARM,
            inboxes=ALARM_INBOXES,
            events=round(60 * scale),
            batch=1,
            per_s=2,
            held={},
            aim=None,
            note="alarms alone, one every half second, over the urgent lane",
        ),
    ]
