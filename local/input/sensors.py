"""Simulated sensors: endless streams of what they notice, in time order, with the rhythm of a day."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

Noticed = tuple[datetime, str, dict[str, Any]]
"""When, where (the event's subject) and what (its data)."""

NIGHT_ENDS, NIGHT_BEGINS = 6, 22
"""Hours between which the residents are up."""

_MOVES_PER_HOUR_BY_DAY, _MOVES_PER_HOUR_BY_NIGHT = 12.0, 1.5
_ROOMS_BY_DAY = {"/living-room": 5, "/kitchen": 4, "/hallway": 2, "/bathroom": 2, "/bedroom": 1}
_ROOMS_BY_NIGHT = {"/bedroom": 5, "/bathroom": 3, "/hallway": 1}
_HOURS_BETWEEN_CALLS = 72.0
_DOORS = {"/front-door": 1, "/fridge": 4}
_KEYWORDS = ("help", "emergency", "call a doctor")


@dataclass(frozen=True)
class Reading:
    """A quantity that is measured every `every` (with jitter): a mean, a swing over the day, and noise."""

    subject: str
    quantity: str
    unit: str
    every: timedelta
    mean: float
    swing: float
    noise: float
    digits: int = 1

    def notice(self, random: Random, start: datetime) -> Iterator[Noticed]:
        own_mean = self.mean + random.gauss(0, self.noise)  # no two homes are alike
        at = start + self.every * random.random()
        while True:
            # Warmest, brightest and busiest at 15 o'clock.
            rhythm = math.cos((at.hour + at.minute / 60 - 15) / 24 * math.tau)
            value = max(0.0, own_mean + self.swing * rhythm + random.gauss(0, self.noise))
            shown = round(value, self.digits) if self.digits else round(value)
            yield at, self.subject, {"quantity": self.quantity, "value": shown, "unit": self.unit}
            at += self.every * random.uniform(0.9, 1.1)


def motion(random: Random, start: datetime) -> Iterator[Noticed]:
    """Movements in rooms: many by day, few and mostly around the bedroom by night."""
    at = start
    while True:
        day = _is_day(at)
        at += _hours(random.expovariate(_MOVES_PER_HOUR_BY_DAY if day else _MOVES_PER_HOUR_BY_NIGHT))
        yield at, _pick(random, _ROOMS_BY_DAY if day else _ROOMS_BY_NIGHT), {"state": "moved"}


def doors(random: Random, start: datetime) -> Iterator[Noticed]:
    """Doors that are opened by day, about once an hour, and closed within two minutes."""
    at = start
    while True:
        at += _hours(random.expovariate(1.0))
        if not _is_day(at):
            continue
        door = _pick(random, _DOORS)
        yield at, door, {"state": "opened"}
        at += timedelta(seconds=random.uniform(5, 120))
        yield at, door, {"state": "closed"}


def calls_for_help(random: Random, start: datetime, first_within: timedelta | None) -> Iterator[Noticed]:
    """The keyword, every few days; `first_within` makes the first call early, so that a short run has one."""
    at = start
    gap = first_within * random.uniform(0.2, 1) if first_within else _until_next_call(random)
    while True:
        at += gap
        room = _pick(random, _ROOMS_BY_DAY)
        confidence = round(random.uniform(0.7, 0.99), 2)
        yield at, room, {"keyword": random.choice(_KEYWORDS), "room": room[1:], "confidence": confidence}
        gap = _until_next_call(random)


def _until_next_call(random: Random) -> timedelta:
    return _hours(random.expovariate(1 / _HOURS_BETWEEN_CALLS))


def _pick(random: Random, weights: Mapping[str, int]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def _is_day(at: datetime) -> bool:
    return NIGHT_ENDS <= at.hour < NIGHT_BEGINS


def _hours(hours: float) -> timedelta:
    return timedelta(hours=hours)
