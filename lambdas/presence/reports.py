"""What the monitor has to say, as events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventplane import presence
from eventplane.envelope import write_event
from eventplane.timestamps import timestamp_of_ms

SOURCE: Final = f"/eventplane/cloud/{presence.MONITOR}"
"""The `source` of all events of the monitor; their `subject` is the device."""


@dataclass(frozen=True, slots=True)
class Report:
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
