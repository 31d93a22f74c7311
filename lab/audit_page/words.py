"""The names of a report in words, and its numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from glue_jobs.delivery_audit.verdict import at_home, attested, percent

HOPS: Final = {
    "device_inbox": "device to a service in the home",
    "device_cloud": "device to cloud",
    "iot_rule": "IoT Core's rule",
    "router": "router",
    "inbox_consumer": "inbox to consumer",
    "archive": "archive",
}
"""Where a finding can lie, in the order of an event's way."""

RESTS_ON: Final = {
    "manifest": "stated by a manifest of its device",
    "numbering": "numbered, stated by no manifest",
    "tap": "without a number: the tap alone",
    "nothing": "numbers that nobody has seen or stated",
}
"""What the statement about a device's event rests on, the best first."""

MEASURED: Final = {
    "device_to_cloud": "from the service's sending, by the device's clock, to IoT Core",
    "cloud_to_inbox": "from IoT Core to the inbox: queues and routers",
    "device_to_inbox": "from the service's sending, by the device's clock, to the inbox",
    "inbox_to_consumer": "from the inbox to the webhook's answer",
}
"""From where to where the latency of a hop is measured."""

_NAMES: Final = {
    "client_id": "device",
    "delivered": "in the inbox",
    "pending": "waiting",
    "skew_ms": "clock ahead",
    "max_ms": "longest",
    "gaps": "numbers not archived",
    "received": "handled",
    "unexpected": "extra",
    "reports": "device reports",
    "service": "inbox",
    "late_s": "late",
}
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def plain(name: str) -> str:
    """Return a name of the report in words."""
    return HOPS.get(name) or _NAMES.get(name) or name.removesuffix("_ms").replace("_", " ")


def count(number: float | None) -> str:
    """Return a number with separated thousands; a dash for None."""
    return "-" if number is None else f"{number:,.0f}"


def share(part: float | None) -> str:
    """Return a share of 1 in per cent, as the audit's reasons do; all but one is not 100 %."""
    return "unknown" if part is None else percent(part)


def duration(milliseconds: float | None) -> str:
    """Return milliseconds in the largest unit of which there is one, to two digits or more."""
    if milliseconds is None:
        return "-"
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            value = milliseconds / size
            return f"{value:.0f} {unit}" if abs(value) >= 10 else f"{value:.2g} {unit}"
    return f"{milliseconds:.0f} ms"


def moment(milliseconds: int | None) -> str:
    """Return a Unix time to the second, UTC; empty for None."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def covered(coverage: Mapping[str, Any]) -> str:
    """Return what the verdict rests on, in a sentence."""
    devices = coverage["devices"]
    if coverage["fleet"] is None:
        fleet = "No list says which devices should be there."
    else:
        fleet = f"{count(devices['attested'])} of {count(devices['expected'])} expected devices are attested."
    home = coverage.get("home", {})
    homes = f" {at_home(home)}." if home.get("stated") else ""
    return f"{attested(coverage)} are attested by manifests: {share(coverage['share'])}. {fleet}{homes}"


def reason(sentence: str) -> str:
    """Return a reason of the report with its kinds and hops in words."""
    named = re.sub("`([^`]*)`", lambda found: plain(found[1]), sentence)
    return re.sub("|".join(HOPS), lambda found: HOPS[found[0]], named)
