"""The events of the monitor: reports about devices, and notices to carers with the texts of `texts.toml`."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from eventplane import names
from eventplane.envelope import write_event
from eventplane.presence import Incident, PresenceItem
from eventplane.values import timestamp_of_ms

SOURCE: Final = f"/eventplane/cloud/{names.MONITOR}"
"""The `source` of all events of the monitor; their `subject` is the device."""


@dataclass(frozen=True, slots=True)
class StateReport:
    """One event to be: its `type`, since when it is so (Unix milliseconds), and the rest of its data."""

    type: str
    since_ms: int
    data: Mapping[str, Any]

    def write(self, device: str, revision: int, now_ms: int) -> str:
        """The event in JSON format, said of `device` at `now_ms` (Unix milliseconds).

        Its id follows from these: a `revision` of a device's state says a type once. The moment tells the
        lives of a device apart that was forgotten in between.
        """
        attributes = {
            "id": f"{device}.{now_ms}.{revision}.{self.type.split('.')[-2]}",
            "source": SOURCE,
            "type": self.type,
            "subject": device,
            "time": timestamp_of_ms(now_ms),
            "partitionkey": device,
        }
        data = {"device": device, "since": timestamp_of_ms(self.since_ms), **self.data}
        return write_event(attributes, data).json


TEXTS: Final = Path(__file__).with_name("texts.toml")

OPENED: Final = "opened"
"""The phase that begins an incident."""

WORSENED: Final = "worsened"
"""The phase of an incident that got worse, or began again before carers were told that it was over."""

OVER: Final = "over"
"""The phase, and the text, that ends an incident, whatever it began with."""


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The text for one reason: a headline, what it means, and what to check, in this order."""

    title: str
    text: str
    check: tuple[str, ...]


# At import: a function without its texts should not start.
TEXT_BY_REASON: Final = {
    name: ReasonText(each["title"], each["text"], tuple(each["check"]))
    for name, each in tomllib.loads(TEXTS.read_text(encoding="utf-8")).items()
}


def notice_of(device: str, incident: Incident, phase: str, since_ms: int) -> StateReport:
    """Return the notice that an incident `opened` or `worsened` `since_ms` (Unix milliseconds), or is `over`.

    Then nobody needs to check anything any more.
    """
    text = TEXT_BY_REASON[OVER if phase == OVER else incident.reason]
    return StateReport(
        names.NOTICE,
        since_ms,
        {
            "incident": incident.id,
            "phase": phase,
            "reason": incident.reason,
            "title": text.title.format(device=device),
            "text": text.text.format(device=device),
            "check": [each.format(device=device) for each in text.check],
        },
    )


def notice_of_many(phase: str, states: Sequence[PresenceItem], now_ms: int) -> str:
    """Return one notice, in JSON format, for the notices of `phase` that are held back of `states`.

    Its id follows from the incidents: the same notice has it again.
    """
    held = [(each.device, each.held) for each in states if each.held]
    text = TEXT_BY_REASON["many_over" if phase == OVER else "many"]
    incidents = ",".join(sorted(each.incident for _, each in held))
    attributes = {
        "id": f"many.{phase}.{hashlib.sha256(incidents.encode()).hexdigest()[:32]}",
        "source": SOURCE,
        "type": names.NOTICE_OF_MANY,
        "time": timestamp_of_ms(now_ms),
    }
    data = {
        "phase": phase,
        "since": timestamp_of_ms(min(each.at_ms for _, each in held)),
        "devices": [{"device": device, "incident": each.incident} for device, each in held],
        **asdict(text),
    }
    return write_event(attributes, data).json
