"""TIHM: real readings of medical devices, and clinical alerts, of people who live with dementia.

Every patient is a home whose health-service sends the readings and raises an urgent alarm for every alert.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from local.input.errors import InputRowError
from local.input.model import HomeInput, InputEvent, input_event
from local.input.table import number, read_rows, utc_time

FOLDER = "tihm-physiology"
SERVICE = "health-service"
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


@dataclass(frozen=True, slots=True)
class _Entry:
    """One row of either file, not yet an event: 18,000 of these are small."""

    at: datetime
    id: str
    type: str
    subject: str
    data: dict[str, Any]


def tihm_homes(folder: Path) -> list[HomeInput]:
    """The patients' homes, those with most alerts first, so that a small choice has urgent events as well.

    A patient who appears among the alerts only is a home too. Raises `InputError`.
    """
    patients: dict[str, list[_Entry]] = defaultdict(list)
    for patient, entry in _readings(folder / "Physiology.csv.xz"):
        patients[patient].append(entry)
    for patient, entry in _alerts(folder / "Labels.csv"):
        patients[patient].append(entry)
    homes = [_home(patient, entries) for patient, entries in patients.items()]
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


def _home(patient: str, entries: list[_Entry]) -> HomeInput:
    name = f"tihm-{patient}"
    # The file has rows that are earlier than the row before them.
    entries.sort(key=lambda entry: entry.at)

    def events() -> Iterator[InputEvent]:
        for each in entries:
            yield input_event(
                name, SERVICE, id=each.id, type=each.type, subject=each.subject, at=each.at, data=each.data
            )

    return HomeInput(name, (SERVICE,), len(entries), sum(each.type == ALARM_TYPE for each in entries), events)
