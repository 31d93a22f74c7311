"""Homes that do not exist: the same for the same seed, to the last character."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from random import Random

from local.input.model import HomeInput, InputEvent, input_event
from local.input.sensors import Noticed, Reading, calls_for_help, doors, motion

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
        Reading("/living-room/temperature", "temperature", "Cel", _QUARTER, 21.5, 1.0, 0.2, 2),
        Reading("/bedroom/temperature", "temperature", "Cel", _QUARTER, 18.5, 0.8, 0.2, 2),
        Reading("/living-room/relative-humidity", "relative-humidity", "%", _QUARTER, 45, -4, 1.5, 0),
        Reading("/living-room/illuminance", "illuminance", "lx", _HALF, 90, 120, 15, 0),
    ),
    ("climate-service", _AIR_TYPE): (
        Reading("/bedroom/carbon-dioxide", "carbon-dioxide", "[ppm]", _QUARTER, 850, -250, 40, 0),
        Reading("/living-room/particulate-matter-2.5", "particulate-matter-2.5", "ug/m3", _HALF, 9, 3, 1.5),
    ),
    ("health-service", _HEALTH_TYPE): (
        Reading("/heart/rate", "heart-rate", "/min", _HALF, 72, 7, 3, 0),
        Reading("/blood/oxygen-saturation", "oxygen-saturation", "%", _HALF, 96, 0.3, 0.4, 0),
        Reading("/body/temperature", "body-temperature", "Cel", _TWICE_A_DAY, 36.6, 0.3, 0.1),
        Reading("/blood-pressure/systolic", "blood-pressure-systolic", "mm[Hg]", _TWICE_A_DAY, 132, 5, 6, 0),
        Reading("/blood-pressure/diastolic", "blood-pressure-diastolic", "mm[Hg]", _TWICE_A_DAY, 80, 3, 4, 0),
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
