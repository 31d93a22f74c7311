"""The input of the demo: events of homes, simulated or real, in time order.

`open_input` chooses the homes that are played, and how many events of each: a fair, repeatable choice.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, zip_longest
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

from lab.input.datasets import OPENSMARTHOME, TIHM, opensmarthome_homes, tihm_homes
from lab.input.model import HomeInput, InputBoundError, InputEvent, InputMissingError, input_event

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
class Sensed:
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


START = datetime(2025, 1, 6, 6, tzinfo=UTC)
"""When every simulation begins: a Monday in winter, when the residents get up."""

FIRST_CALL_WITHIN = timedelta(hours=1)
EARLY_CALLER_EVERY = 3
"""Every so many homes, beginning with the first, one calls for help within `FIRST_CALL_WITHIN`."""

UPDATED_EVERY = 2
"""Every so many homes, beginning with the second, one sends its medical readings by version 1.1."""

_NEW_READING = "https://schemas.eventplane.org/reading.v1.1.json"

SERVICES = ("activity-service", "climate-service", "health-service", "voice-service")

_MOTION_TYPE = "org.eventplane.activity.motion.v1"
_DOOR_TYPE = "org.eventplane.activity.door.v1"
_KEYWORD_TYPE = "org.eventplane.alarm.keyword.v1"
_CLIMATE_TYPE = "org.eventplane.climate.reading.v1"
_AIR_TYPE = "org.eventplane.airquality.reading.v1"
_HEALTH_TYPE = "org.eventplane.health.reading.v1"

_QUARTER, _HALF, _TWICE_A_DAY = timedelta(minutes=15), timedelta(minutes=30), timedelta(hours=12)

_READINGS = {
    ("climate-service", _CLIMATE_TYPE): (
        Sensed("/living-room/temperature", "temperature", "Cel", _QUARTER, 21.5, 1.0, 0.2, 2),
        Sensed("/bedroom/temperature", "temperature", "Cel", _QUARTER, 18.5, 0.8, 0.2, 2),
        Sensed("/living-room/relative-humidity", "relative-humidity", "%", _QUARTER, 45, -4, 1.5, 0),
        Sensed("/living-room/illuminance", "illuminance", "lx", _HALF, 90, 120, 15, 0),
    ),
    ("climate-service", _AIR_TYPE): (
        Sensed("/bedroom/carbon-dioxide", "carbon-dioxide", "[ppm]", _QUARTER, 850, -250, 40, 0),
        Sensed("/living-room/particulate-matter-2.5", "particulate-matter-2.5", "ug/m3", _HALF, 9, 3, 1.5),
    ),
    ("health-service", _HEALTH_TYPE): (
        Sensed("/heart/rate", "heart-rate", "/min", _HALF, 72, 7, 3, 0),
        Sensed("/blood/oxygen-saturation", "oxygen-saturation", "%", _HALF, 96, 0.3, 0.4, 0),
        Sensed("/body/temperature", "body-temperature", "Cel", _TWICE_A_DAY, 36.6, 0.3, 0.1),
        Sensed("/blood-pressure/systolic", "blood-pressure-systolic", "mm[Hg]", _TWICE_A_DAY, 132, 5, 6, 0),
        Sensed("/blood-pressure/diastolic", "blood-pressure-diastolic", "mm[Hg]", _TWICE_A_DAY, 80, 3, 4, 0),
    ),
}


@dataclass(frozen=True)
class _Sensor:
    name: str
    service: str
    type: str
    notice: Callable[[Random, datetime], Iterator[Noticed]]


def simulated_homes(count: int, seed: int) -> list[HomeInput]:
    """`count` homes that never end, `home-01` and on. A home is the same whatever the number of homes."""
    return [_home(index, seed) for index in range(count)]


def _home(index: int, seed: int) -> HomeInput:
    name = f"home-{index + 1:02}"
    calls_early = index % EARLY_CALLER_EVERY == 0

    is_updated = index % UPDATED_EVERY == 1

    def events() -> Iterator[InputEvent]:
        streams = (_stream(name, sensor, seed, is_updated) for sensor in _sensors(calls_early))
        return heapq.merge(*streams, key=attrgetter("at"))

    return HomeInput(name, SERVICES, None, int(calls_early), events)


def _sensors(calls_early: bool) -> Iterator[_Sensor]:
    first_within = FIRST_CALL_WITHIN if calls_early else None
    yield _Sensor("motion", "activity-service", _MOTION_TYPE, motion)
    yield _Sensor("door", "activity-service", _DOOR_TYPE, doors)
    yield _Sensor(
        "keyword",
        "voice-service",
        _KEYWORD_TYPE,
        lambda random, start: calls_for_help(random, start, first_within),
    )
    for (service, type_), readings in _READINGS.items():
        for reading in readings:
            yield _Sensor(reading.subject[1:].replace("/", "-"), service, type_, reading.notice)


def _stream(home: str, sensor: _Sensor, seed: int, is_updated: bool) -> Iterator[InputEvent]:
    is_new = is_updated and sensor.type == _HEALTH_TYPE
    # Its own generator for every sensor: what one draws does not change what another one sees.
    random = Random(f"{seed}/{home}/{sensor.name}")
    for number, (at, subject, data) in enumerate(sensor.notice(random, START), start=1):
        yield input_event(
            home,
            sensor.service,
            id=f"{sensor.name}-{number}",
            type=sensor.type,
            subject=subject,
            at=at.replace(microsecond=0),
            data={**data, "origin": "measured"} if is_new else data,
            dataschema=_NEW_READING if is_new else None,
        )


DEFAULT_HOMES = 5
DEFAULT_EVENTS = 2_000
ALL = "all"


@dataclass(frozen=True)
class Input:
    """The chosen `homes` and how many events each plays (`quotas`). Iterating gives them in time order."""

    homes: tuple[HomeInput, ...]
    quotas: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of events."""
        return sum(self.quotas)

    def __iter__(self) -> Iterator[InputEvent]:
        streams = (islice(home.events(), quota) for home, quota in zip(self.homes, self.quotas, strict=True))
        return heapq.merge(*streams, key=attrgetter("at"))


def open_input(
    data: Path | None = None,
    homes: int | None = DEFAULT_HOMES,
    events: int | None = DEFAULT_EVENTS,
    seed: int = 1,
) -> Input:
    """The input of a run: the data sets in the folder `data`, or the simulator's homes of `seed` without one.

    At most `homes` homes and `events` events are chosen; None means all. Raises `InputError`.
    """
    if data is None:
        if homes is None or events is None:
            name = "HOMES" if homes is None else "EVENTS"
            raise InputBoundError(name, ALL, "the simulator never ends; give a number, or DATA")
        chosen = simulated_homes(homes, seed)
    else:
        chosen = choose_homes(_sources(data), homes)
    return Input(tuple(chosen), tuple(fair_quotas([home.size for home in chosen], events)))


def read_bound(name: str, text: str) -> int | None:
    """The bound that `text` states: a number from 1, or `all` (None). Raises `InputBoundError`."""
    if text == ALL:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputBoundError(name, text, "give a number from 1, or all")
    return int(text)


def choose_homes(sources: Sequence[Sequence[HomeInput]], count: int | None) -> list[HomeInput]:
    """At most `count` homes, one of each source in turn, so that a small choice has every kind of home."""
    in_turn = [home for home in chain.from_iterable(zip_longest(*sources)) if home is not None]
    return in_turn[:count]


def fair_quotas(sizes: Sequence[int | None], total: int | None) -> list[int]:
    """Return the number of events that each home plays so that all play `total`; None is endless, or all.

    The first `total` events of all homes would be those of 2017 alone: one data set ends two years before
    the other begins. So every home gets an equal share, and what a small home leaves over goes to the rest.
    """
    if total is None:
        return [size for size in sizes if size is not None]
    left = total
    limits = [total if size is None else size for size in sizes]
    quotas = [0] * len(sizes)
    # From the smallest on: whatever it leaves over makes the share of all that follow larger.
    for done, index in enumerate(sorted(range(len(sizes)), key=limits.__getitem__)):
        quotas[index] = min(limits[index], left // (len(sizes) - done))
        left -= quotas[index]
    return quotas


def _sources(data: Path) -> list[list[HomeInput]]:
    readers = {TIHM: tihm_homes, OPENSMARTHOME: opensmarthome_homes}
    sources = [read(data / folder) for folder, read in readers.items() if (data / folder).is_dir()]
    if not sources:
        raise InputMissingError(data / TIHM, f"DATA must name the folder of {' or '.join(readers)}")
    return sources
