"""The reports of a device as JSON and as text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from eventplane.contract import Priority
from operations import text
from operations.reported import DeviceReport

_NOT_REPORTED: Final = "not reported"

_MOST_LOSSES: Final = 20
"""Kinds of losses that a person is shown."""

_TEXTS: Final = ("contract", "image", "version")
_NUMBERS: Final = ("pending", "on_disk", "disk_free_bytes", "spool_pressure", "uptime_s")

_COUNTED: Final = {
    "discards": "deliveries ended",
    "dead_letters": "dead letters",
    "refused": "refused for want of room",
    "received_dropped": "dropped before they were stored",
}
"""What the forwarder counts since its start, and the words for it."""


def document(report: DeviceReport) -> dict[str, Any]:
    """Return the report as JSON: times in Unix milliseconds, null for what is not known."""
    state = report.presence
    seen, quiet = (state.sighting, state.quiet) if state else (None, None)
    return {
        "connection": seen and {"state": seen.line, "since_ms": seen.at_ms, "cause": seen.cause or None},
        "quiet": quiet and asdict(quiet),
        "heartbeat_ms": report.last_heard_ms,
        "interval_s": report.interval_s,
        "figures_ms": report.heartbeat_ms,
        "backlog": {each: _waits(report, each) for each in Priority},
        **{name: report.text(name) for name in _TEXTS},
        **{name: report.number(name) for name in (*_NUMBERS, *_COUNTED)},
        "clock_ahead_ms": report.clock_ahead_ms,
        "discarded": [{**each._asdict(), "count": number} for each, number in report.lost.items()]
        if report.lost is not None
        else None,
    }


def lines(report: DeviceReport) -> list[tuple[str, str]]:
    """Return the name and the words of each line for a person."""
    pending = report.number("pending")
    found = [("connection", connection(report)), ("heartbeat", _heartbeat(report))]
    found.append(("backlog", _NOT_REPORTED if pending is None else f"{pending:.0f} pending"))
    found += [(f"{each} backlog", _waiting(**_waits(report, each))) for each in Priority]
    found += [(each, report.text(each) or _NOT_REPORTED) for each in _TEXTS]
    found += [("clock", _clock(report.clock_ahead_ms)), ("disk", _disk(report))]
    found.append(("counted", _counted(report)))
    return [*found, *(("discarded", each) for each in _discarded(report))]


def connection(report: DeviceReport) -> str:
    """Return since when the device is connected or not, and whether it is quiet, in words."""
    state = report.presence
    if state is None or state.sighting is None:
        return _NOT_REPORTED
    words = f"{state.sighting.line} since {text.moment(state.sighting.at_ms)}"
    if state.sighting.cause:
        words += f", {state.sighting.cause}"
    return words if state.quiet is None else f"{words}, quiet: {state.quiet.reason}"


def _heartbeat(report: DeviceReport) -> str:
    if report.last_heard_ms is None:
        return _NOT_REPORTED
    every = "" if report.interval_s is None else f", every {text.age(report.interval_s)}"
    known = "not in the archive" if report.heartbeat_ms is None else f"of {text.moment(report.heartbeat_ms)}"
    return f"{text.moment(report.last_heard_ms)}{every}; its figures are {known}"


def _waits(report: DeviceReport, priority: Priority) -> dict[str, float | None]:
    """Return how many deliveries wait on the device, and the age of the oldest, seconds."""
    pending, oldest_s = report.number(f"pending_{priority}"), report.number(f"oldest_{priority}_s")
    return {"pending": pending, "oldest_s": oldest_s}


def _waiting(pending: float | None, oldest_s: float | None) -> str:
    if pending is None and oldest_s is None:
        return _NOT_REPORTED
    words = "number not reported" if pending is None else f"{pending:.0f} pending"
    return f"{words}, the oldest for {text.age(oldest_s)}" if oldest_s else words


def _clock(ahead_ms: int | None) -> str:
    if ahead_ms is None:
        return _NOT_REPORTED
    if ahead_ms >= 0:
        return f"ahead by {ahead_ms / 1_000:.1f} s at least"
    return f"behind by {-ahead_ms / 1_000:.1f} s at most"


def _disk(report: DeviceReport) -> str:
    free, pressure = report.number("disk_free_bytes"), report.number("spool_pressure")
    words = [
        "" if free is None else f"{free / 1e9:.1f} GB free",
        "" if pressure is None else f"the spool is {pressure:.0%} full",
        "nothing is stored: the disk fails" if report.number("on_disk") == 0 else "",
    ]
    return ", ".join(filter(None, words)) or _NOT_REPORTED


def _counted(report: DeviceReport) -> str:
    numbers = {words: report.number(name) for name, words in _COUNTED.items()}
    since = report.number("uptime_s")
    words = [f"{number:.0f} {each}" for each, number in numbers.items() if number is not None]
    if not words:
        return _NOT_REPORTED
    return ", ".join(words) + ("" if since is None else f"; started {text.age(since)} before")


def _discarded(report: DeviceReport) -> list[str]:
    if report.lost is None:
        return [_NOT_REPORTED]
    losses = sorted(report.lost.items(), key=lambda each: -each[1])
    shown = [f"{number} {each.outcome} at {each.where}: {each.reason}" for each, number in losses]
    if len(shown) > _MOST_LOSSES:
        shown[_MOST_LOSSES:] = [f"{len(shown) - _MOST_LOSSES} kinds more; --json has all"]
    return shown or [f"nothing, from {report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M}"]
