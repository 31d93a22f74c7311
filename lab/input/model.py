"""The input of the demo, events of homes in time order, and what can be wrong with the input."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from eventplane.envelope import Envelope, write_event
from lab.errors import LocalError


class InputError(LocalError):
    """The input cannot be played."""


class InputBoundError(InputError):
    """HOMES or EVENTS has a value that cannot be met. `name` is the setting's."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        self.name, self.value = name, value
        super().__init__(f"{name}={value}: {remedy}")


class InputMissingError(InputError):
    """A data folder or file is not there."""

    def __init__(self, path: Path, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path} is missing: {remedy}")


class InputFileError(InputError):
    """A data file cannot be read as what it should be."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}; fetch the file again")


class InputRowError(InputError):
    """One row is wrong. `line` counts from 1, as editors do."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path, self.line, self.problem = path, line, problem
        super().__init__(f"{path}, line {line}: {problem}; correct or remove the row")


@dataclass(frozen=True, slots=True)
class InputEvent:
    """An `event` that `service` of `home` sends at `at` (UTC): the same moment as the event's `time`."""

    home: str
    service: str
    event: Envelope
    at: datetime


@dataclass(frozen=True)
class HomeInput:
    """One home: its `services`, and its events in time order from the start each time they are asked for.

    `size` is their number (None: they never end) and `urgent` how many of them are alarms, as far as known.
    """

    name: str
    services: tuple[str, ...]
    size: int | None
    urgent: int
    events: Callable[[], Iterator[InputEvent]] = field(repr=False, compare=False)


def input_event(
    home: str,
    service: str,
    *,
    id: str,
    type: str,
    subject: str,
    at: datetime,
    data: Mapping[str, Any],
    dataschema: str | None = None,
) -> InputEvent:
    """The event that `service` of `home` makes of `data`, by its `dataschema`. `at` must be in UTC."""
    attributes = {
        "id": id,
        "source": f"/homes/{home}/{service}",
        "type": type,
        "subject": subject,
        "time": at.isoformat().removesuffix("+00:00") + "Z",
    }
    if dataschema is not None:
        attributes["dataschema"] = dataschema
    return InputEvent(home, service, write_event(attributes, data), at)
