"""What the demo plays: events of homes, in time order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eventplane.envelope import Envelope, write_event


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
