"""The audit's names in words, and its numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

HOPS: Final = {
    "device_cloud": "device to cloud",
    "iot_rule": "IoT Core's rule",
    "router": "router",
    "inbox_consumer": "inbox to consumer",
    "archive": "the archive",
}
"""Where an event or its record can be lost, in the order of its way."""

_CALLED: Final = {"client_id": "device", "skew_ms": "clock ahead", "max_ms": "longest"}
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def plain(name: str) -> str:
    """A name of the report in words."""
    return HOPS.get(name) or _CALLED.get(name) or name.removesuffix("_ms").replace("_", " ")


def count(number: float | None) -> str:
    """A number with its thousands apart; a dash where there is none."""
    return "-" if number is None else f"{number:,.0f}"


def duration(milliseconds: float | None) -> str:
    """Milliseconds in the largest unit of which there is one, to two digits or more."""
    if milliseconds is None:
        return "-"
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            value = milliseconds / size
            return f"{value:.0f} {unit}" if abs(value) >= 10 else f"{value:.2g} {unit}"
    return f"{milliseconds:.0f} ms"


def moment(milliseconds: int | None) -> str:
    """A Unix time, to the second, UTC; empty where there is none."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def verdict(report: Mapping[str, Any]) -> list[str]:
    """What the audit says, the worst first, each a sentence."""
    sentences = list(report["reasons"] or ["Everything was delivered, and every promise was kept."])
    if lost := report["totals"].get("acknowledged_lost"):
        sentences.append(
            f"{count(lost)} of the lost were acknowledged by IoT Core: their devices do not send them again."
        )
    return [*sentences, coverage(report)]


def coverage(report: Mapping[str, Any]) -> str:
    """On what the verdict rests, in a sentence."""
    events, devices = report["coverage"]["events"], report["coverage"]["devices"]
    seen = events["manifest"] + events["numbering"] + events["tap"]
    return (
        f"Attested by manifests: {count(events['manifest'])} of {count(seen)} device events, "
        f"{count(devices['attested'])} of {count(devices['expected'])} expected devices."
    )
