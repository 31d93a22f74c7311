"""How long each alarm took to the alarm centre, and what was broken at its home."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from local.consumers import Kept
from local.demo.faults import Fault

ALARM_CENTRE: Final = "alarm-centre"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An event at the alarm centre, `seconds` after its sending; `fault`: what struck its home."""

    home: str
    type: str
    seconds: float
    fault: str | None


def alarms(kept: Iterable[Kept], faults: Iterable[Fault]) -> list[Alarm]:
    """Return the alarms of homes without a fault first, the quickest first."""
    struck = {fault.home: fault.kind for fault in faults}
    found = [
        Alarm(each.device, each.type, (each.arrived_ms - each.sent_ms) / 1000, struck.get(each.device))
        for each in kept
        if each.service == ALARM_CENTRE and each.sent_ms is not None
    ]
    return sorted(found, key=lambda alarm: (alarm.fault is not None, alarm.seconds))
