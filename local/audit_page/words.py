"""The audit's names in words, and its numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

BROKEN: Final = (
    *("lost", "misrouted", "unrouted_delivered", "reordered", "forged"),
    *("not_allowed", "stale_contract", "unconfirmed", "missing_manifest"),
)
"""The kinds of findings that break a promise of the plane; `glue_jobs.delivery_audit.findings.BROKEN`."""

HOPS: Final = {
    "device_cloud": "device to cloud",
    "iot_rule": "IoT Core's rule",
    "router": "router",
    "inbox_consumer": "inbox to consumer",
}
"""Where an event can be lost, in the order of its way."""

_COUNTED: Final = {
    "lost": "lost",
    "misrouted": "misrouted",
    "unrouted_delivered": "delivered without a route",
    "reordered": "out of order",
    "forged": "forged",
    "not_allowed": "delivered without the right to send it",
    "stale_contract": "decided by an old contract",
    "unconfirmed": "never decided by the contract in force",
    "missing_manifest": "manifests missing",
}
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
    totals = report["totals"]
    found = dict.fromkeys(BROKEN, 0)
    for each in report["kinds"]:
        if each["kind"] in found:
            found[each["kind"]] += each["count"]
    # What is missing of a device is one finding for many events where nobody can tell which.
    found["lost"] = totals["lost"]
    said = [f"{count(number)} {_COUNTED[kind]}" for kind, number in found.items() if number]
    sentences = [f"{', '.join(said)}." if said else "Nothing was lost, and every promise was kept."]
    if totals.get("acknowledged_lost"):
        sentences.append(
            f"{count(totals['acknowledged_lost'])} of the lost were acknowledged by IoT Core: "
            "their devices do not send them again."
        )
    if totals["quarantined"]:
        sentences.append(f"{count(totals['quarantined'])} rows could not be read: of them nothing is known.")
    if totals["pending"]:
        sentences.append(f"{count(totals['pending'])} may still come.")
    return sentences
