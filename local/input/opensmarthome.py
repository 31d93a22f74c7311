"""OpenSmartHome: real readings of the rooms of one flat. Every room is a home with a climate-service."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from pathlib import Path

from local.input.errors import InputFileError, InputMissingError
from local.input.model import HomeInput, InputEvent, input_event
from local.input.table import number, read_rows, unix_time

FOLDER = "opensmarthome-flat"
SERVICE = "climate-service"
READING_TYPE = "org.eventplane.climate.reading.v1"

_FILE_NAME = re.compile(r"(?P<room>[A-Za-z0-9]+)_(?:(?P<side>left|right)_)?(?P<column>[A-Za-z]+)\.csv\.xz")
_QUANTITIES = {
    "Temperature": ("temperature", "Cel"),
    "ThermostatTemperature": ("thermostat-temperature", "Cel"),
    "SetpointHistory": ("setpoint-temperature", "Cel"),
    "OutdoorTemperature": ("outdoor-temperature", "Cel"),
    "Humidity": ("relative-humidity", "%"),
    "Brightness": ("illuminance", "lx"),
}
"""Quantity and UCUM unit of each kind of file."""


@dataclass(frozen=True, slots=True)
class _Series:
    """One file: the readings (time, line, value) of one `quantity`, in time order."""

    room: str
    subject: str
    quantity: str
    unit: str
    readings: list[tuple[datetime, int, int | float]]

    def events(self, home: str) -> Iterator[InputEvent]:
        prefix = self.subject[1:].replace("/", "-")
        for at, line, value in self.readings:
            data = {"quantity": self.quantity, "value": value, "unit": self.unit}
            id_ = f"{prefix}-{line}"
            yield input_event(
                home, SERVICE, id=id_, type=READING_TYPE, subject=self.subject, at=at, data=data
            )


def opensmarthome_homes(folder: Path) -> list[HomeInput]:
    """The rooms as homes, by name. Raises `InputError`."""
    rooms: dict[str, list[_Series]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv*")):
        series = _read_series(path)
        rooms[series.room].append(series)
    if not rooms:
        raise InputMissingError(folder / "<Room>_<Quantity>.csv.xz", "DATA must name the complete data sets")
    return [_home(room, series) for room, series in sorted(rooms.items())]


def _read_series(path: Path) -> _Series:
    match = _FILE_NAME.fullmatch(path.name)
    if match is None or match["column"] not in _QUANTITIES:
        raise InputFileError(path, f"its name is not <Room>_<one of {sorted(_QUANTITIES)}>.csv.xz")
    quantity, unit = _QUANTITIES[match["column"]]
    room = match["room"].lower()
    readings = [
        (unix_time(path, line, at), line, number(path, line, value))
        for line, (at, value) in read_rows(path, 2, delimiter="\t")
    ]
    readings.sort(key=itemgetter(0))
    # A room can have two radiators, each with its own thermostat.
    place = f"/{room}/{match['side']}" if match["side"] else f"/{room}"
    return _Series(room, f"{place}/{quantity}", quantity, unit, readings)


def _home(room: str, series: list[_Series]) -> HomeInput:
    name = f"flat-{room}"

    def events() -> Iterator[InputEvent]:
        return heapq.merge(*(each.events(name) for each in series), key=attrgetter("at"))

    return HomeInput(name, (SERVICE,), sum(len(each.readings) for each in series), 0, events)
