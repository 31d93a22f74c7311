"""The ways in which devices send, each published for real."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from time import sleep
from typing import Final

from eventplane.envelope import pack_texts
from lab.benchmarks.cloud.plane import ALARM, ALARM_INBOXES, DOOR, DOOR_INBOXES, BenchDevice, event

BATCH: Final = 250
"""What the forwarder packs at most by default."""

DEVICES: Final = 1_200
"""Devices of a trickle, each with one event a minute."""

_EVENTS_PER_S: Final = DEVICES / 60
_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """`events` of `type` to its two `inboxes`, `batch` of them a publish, at `per_s` publishes a second."""

    name: str
    type: str
    inboxes: tuple[str, ...]
    events: int
    batch: int
    per_s: float
    aim: float | None
    note: str

    @property
    def is_urgent(self) -> bool:
        return self.type == ALARM

    @property
    def seconds(self) -> float:
        """The time that devices would take to send all."""
        return self.events / self.batch / self.per_s

    def payloads(self) -> Iterator[bytes]:
        """Yield the device's payloads, compressed as the forwarder does it."""
        for sent in range(0, self.events, self.batch):
            size = min(self.batch, self.events - sent)
            yield pack_texts(event(f"{self.name}{next(_NUMBERS)}", self.type) for _ in range(size))

    def play(self, device: BenchDevice, *, at_once: bool) -> list[bytes]:
        """Publish all, `at_once` or at its pace, and return what was published."""
        published = []
        for payload in self.payloads():
            device.publish(payload, urgent=self.is_urgent)
            published.append(payload)
            if not at_once:
                sleep(1 / self.per_s)
        return published


def regimes(scale: float) -> list[Regime]:
    """All of them; `scale` 1 is the full size."""
    bulk = Regime(
        name="bulk",
        type=DOOR,
        inboxes=DOOR_INBOXES,
        events=max(1, round(100 * scale)) * BATCH,
        batch=BATCH,
        per_s=20,
        aim=0.10,
        note=f"full batches of {BATCH}, as a backlog drains",
    )
    return [
        bulk,
        *(
            replace(
                bulk,
                name=name,
                events=max(1, round(2_400 * scale / batch)) * batch,
                batch=batch,
                per_s=_EVENTS_PER_S / batch,
                aim=aim,
                note=f"{DEVICES:,} devices with one event a minute each, {batch} a publish",
            )
            for name, batch, aim in (
                ("trickle_single", 1, None),
                ("trickle", 3, 0.60),
                ("trickle_five", 5, 0.60),
            )
        ),
        Regime(
            name="alarm",
            type=ALARM,
            inboxes=ALARM_INBOXES,
            # Two windows of the archive's functions: in a shorter run an event has too many objects.
            events=max(2, round(240 * scale)),
            batch=1,
            per_s=2,
            aim=6.0,
            note="alarms alone, one every half second, over the urgent lane",
        ),
    ]
