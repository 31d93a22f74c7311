"""The real data sets, TIHM and OpenSmartHome, as homes."""

import csv
import heapq
import io
import json
import lzma
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from lab.input.model import (
    HomeInput,
    InputEvent,
    InputFileError,
    InputMissingError,
    InputRowError,
    input_event,
)

Row = tuple[int, list[str]]
"""A row's line number, from 1, and its fields."""


def read_rows(
    path: Path, columns: int, *, delimiter: str = ",", header: list[str] | None = None
) -> Iterator[Row]:
    """Yield the rows of a CSV file, each of `columns` fields; the first must be the `header`, if given.

    Raises `InputMissingError`, `InputFileError` and `InputRowError`.
    """
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=delimiter)
    if header is not None and next(reader, None) != header:
        raise InputRowError(path, 1, f"the header is not {delimiter.join(header)!r}")
    for fields in reader:
        if len(fields) != columns:
            raise InputRowError(path, reader.line_num, f"{len(fields)} fields instead of {columns}")
        yield reader.line_num, fields


def number(path: Path, line: int, text: str) -> int | float:
    """Return a finite number. Raises `InputRowError`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if type(value) not in (int, float) or not isfinite(value):
        raise InputRowError(path, line, f"{text!r} is not a number")
    return value  # type: ignore[no-any-return]


def utc_time(path: Path, line: int, text: str) -> datetime:
    """Return a time such as `2019-04-01 07:58:18`. Raises `InputRowError`.

    The data set has no time zone. UTC is assumed: it keeps the order and repeats no hour.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise InputRowError(path, line, f"{text!r} is not a time such as 2019-04-01 07:58:18") from error


def unix_time(path: Path, line: int, text: str) -> datetime:
    """Return a time in Unix seconds. Raises `InputRowError`."""
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputRowError(path, line, f"{text!r} is not a time in Unix seconds") from error


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise InputMissingError(path, "DATA must name the folder with the complete data sets") from error
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror}") from error
    try:
        return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise InputFileError(path, f"cannot be decoded: {error}") from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """One reading or alert, not yet an event: tens of thousands of these are small."""

    at: datetime
    id: str
    type: str
    subject: str
    data: dict[str, Any]


def _home(
    name: str, service: str, entries: Callable[[], Iterable[_Entry]], size: int, urgent: int = 0
) -> HomeInput:
    """Return the home whose `service` sends an event for each of its entries, which are in time order."""

    def events() -> Iterator[InputEvent]:
        for each in entries():
            yield input_event(
                name,
                service,
                id=each.id,
                type=each.type,
                subject=each.subject,
                at=each.at,
                data=each.data,
            )

    return HomeInput(name, (service,), size, urgent, events)


OPENSMARTHOME = "opensmarthome-flat"
_CLIMATE_SERVICE = "climate-service"
_CLIMATE_READING = "org.eventplane.climate.reading.v1"

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

    def entries(self) -> Iterator[_Entry]:
        prefix = self.subject[1:].replace("/", "-")
        for at, line, value in self.readings:
            data = {"quantity": self.quantity, "value": value, "unit": self.unit}
            yield _Entry(at, f"{prefix}-{line}", _CLIMATE_READING, self.subject, data)


def opensmarthome_homes(folder: Path) -> list[HomeInput]:
    """Return the rooms of one flat, each as a home with a climate-service, by name. Raises `InputError`."""
    rooms: dict[str, list[_Series]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv*")):
        series = _read_series(path)
        rooms[series.room].append(series)
    if not rooms:
        raise InputMissingError(folder / "<Room>_<Quantity>.csv.xz", "DATA must name the complete data sets")
    return [_room(room, series) for room, series in sorted(rooms.items())]


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


def _room(room: str, series: list[_Series]) -> HomeInput:
    def entries() -> Iterable[_Entry]:
        return heapq.merge(*(each.entries() for each in series), key=attrgetter("at"))

    return _home(f"flat-{room}", _CLIMATE_SERVICE, entries, sum(len(each.readings) for each in series))


TIHM = "tihm-physiology"
_HEALTH_SERVICE = "health-service"
READING_TYPE = "org.eventplane.health.reading.v1"
ALARM_TYPE = "org.eventplane.alarm.clinical.v1"

_SUBJECTS = {
    "Body Temperature": "/body/temperature",
    "Skin Temperature": "/skin/temperature",
    "Systolic blood pressure": "/blood-pressure/systolic",
    "Diastolic blood pressure": "/blood-pressure/diastolic",
    "Heart rate": "/heart/rate",
    "Body weight": "/body/weight",
    "O/E - muscle mass": "/body/muscle-mass",
    "Total body water": "/body/water",
}
"""What each device type measures; "O/E" is the clinical abbreviation of "on examination"."""


def tihm_homes(folder: Path) -> list[HomeInput]:
    """Return the homes of people with dementia, those with most alerts first; each has a health-service.

    So a small choice has urgent events. A patient with alerts only is a home as well. Raises `InputError`.
    """
    patients: dict[str, list[_Entry]] = defaultdict(list)
    for patient, entry in _readings(folder / "Physiology.csv.xz"):
        patients[patient].append(entry)
    for patient, entry in _alerts(folder / "Labels.csv"):
        patients[patient].append(entry)
    homes = [_patient(patient, entries) for patient, entries in patients.items()]
    return sorted(homes, key=lambda home: (-home.urgent, home.name))


def _readings(path: Path) -> Iterator[tuple[str, _Entry]]:
    header = ["patient_id", "date", "device_type", "value", "unit"]
    for line, (patient, date, device, value, unit) in read_rows(path, len(header), header=header):
        if device not in _SUBJECTS:
            raise InputRowError(path, line, f"device type {device!r} is not known")
        subject = _SUBJECTS[device]
        data = {"quantity": subject[1:].replace("/", "-"), "value": number(path, line, value), "unit": unit}
        yield patient, _Entry(utc_time(path, line, date), f"physiology-{line}", READING_TYPE, subject, data)


def _alerts(path: Path) -> Iterator[tuple[str, _Entry]]:
    header = ["patient_id", "date", "type"]
    for line, (patient, date, alert) in read_rows(path, len(header), header=header):
        subject = "/alerts/" + alert.lower().replace(" ", "-")
        at = utc_time(path, line, date)
        yield patient, _Entry(at, f"labels-{line}", ALARM_TYPE, subject, {"alert": alert})


def _patient(patient: str, entries: list[_Entry]) -> HomeInput:
    # The file has rows that are earlier than the row before them.
    entries.sort(key=attrgetter("at"))
    alarms = sum(each.type == ALARM_TYPE for each in entries)
    return _home(f"tihm-{patient}", _HEALTH_SERVICE, lambda: entries, len(entries), alarms)
