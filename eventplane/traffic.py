"""The traffic of a device: counted by the archive writer, checked by the presence monitor.

The counts travel as messages of the presence monitor's own queue, one for each device that is loud in a batch
of the archive writer. Quiet devices cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final

from eventplane.fields import whole
from eventplane.settings import check

KINDS: Final = ("frames", "events", "bytes")
"""What is counted: publishes, the items in them, and the bytes of their payloads as they were sent."""

MAX_SENDERS: Final = 10
"""Most devices that one batch reports, the loudest first. Ours: one SendMessageBatch takes them, and more at
a time are not the flood of a device."""

NOTEWORTHY: Final = 0.5
"""A device is reported at this share of its quota's pace, so that what several batches have of it adds up."""

MIN_SPAN_MS: Final = 1_000
"""The shortest time a pace is taken over, milliseconds: a device may send a few frames at once."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that a device may send in `window_s` seconds before it counts as flooding."""

    window_s: int = whole(MISSING, 1, 86_400, "seconds")
    """The window in which a device's traffic is counted."""
    frames: int = whole(MISSING, 1, 10**9, "frames")
    """Publishes in a window; a device that sends more floods."""
    events: int = whole(MISSING, 1, 10**9, "events")
    """Events in a window; a device that sends more floods."""
    bytes: int = whole(MISSING, 1, 10**9, "bytes")
    """Bytes of payloads in a window, as they were sent; a device that sends more floods."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def window_ms(self) -> int:
        """The window in milliseconds."""
        return 1_000 * self.window_s

    def exceeded(self, traffic: Traffic, share: float = 1.0) -> list[str]:
        """Return the kinds of which `traffic` has more than this `share` of the quota."""
        return [each for each in KINDS if getattr(traffic, each) > share * getattr(self, each)]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a device in the window that is number `window` since 1970."""

    window: int
    frames: int = 0
    events: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum with other traffic of the same window."""
        sums = {each: getattr(self, each) + getattr(other, each) for each in KINDS}
        return Traffic(self.window, **sums)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of `device`, accepted at `at_ms` (Unix milliseconds): its items and its payload's bytes."""

    device: str
    at_ms: int
    events: int
    bytes: int


def loudest(publishes: Iterable[Frame], quota: Quota) -> Iterator[tuple[str, Traffic]]:
    """Return the devices that sent faster than `NOTEWORTHY` of their quota's pace, with their traffic.

    A device whose frames are in two windows counts in the later one.
    """
    by_device: dict[str, list[Frame]] = {}
    for each in publishes:
        by_device.setdefault(each.device, []).append(each)
    found: list[tuple[float, str, Traffic]] = []
    for device, sent in by_device.items():
        times = [each.at_ms for each in sent]
        traffic = Traffic(
            max(times) // quota.window_ms,
            len(sent),
            sum(each.events for each in sent),
            sum(each.bytes for each in sent),
        )
        span_ms = max(max(times) - min(times), MIN_SPAN_MS)
        if quota.exceeded(traffic, NOTEWORTHY * span_ms / quota.window_ms):
            most = max(getattr(traffic, each) / getattr(quota, each) for each in KINDS)
            found.append((most, device, traffic))
    found.sort(key=lambda each: each[0], reverse=True)
    return ((device, traffic) for _, device, traffic in found[:MAX_SENDERS])


def traffic_text(device: str, traffic: Traffic, report: str = "") -> str:
    """Return the message body that reports `traffic` of `device`; a copy has the same `report`."""
    return json.dumps({"device": device, "traffic": asdict(traffic), "report": report})


def read_traffic(members: Mapping[str, Any]) -> tuple[str, Traffic, str] | None:
    """Return the device and its traffic in a message's members; None for another message.

    Raises `ValueError`, `TypeError`, `LookupError` for a message that only looks like one.
    """
    if "traffic" not in members:
        return None
    counts = {each.name: int(members["traffic"][each.name]) for each in fields(Traffic)}
    return str(members["device"]), Traffic(**counts), str(members.get("report", ""))
