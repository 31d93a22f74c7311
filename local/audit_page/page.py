"""The page itself: one file that needs nothing else, verdict first, everything down to the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from contract import pages
from local.audit_page import drawings, evidence, words

PAGE: Final = "audit.html"
"""The page's name beside the report that it shows."""

_HERE: Final = Path(__file__).parent


def write_page(report: Mapping[str, Any], path: Path, archive: str | None = None) -> None:
    """Write the page of the audit's `report` (its document, format 3).

    `archive` is where the audited archive lies, for the page's links and commands; None: no links, and the
    commands are for the archive of an environment.
    """
    environment = pages.environment(_HERE)
    environment.filters |= {
        each.__name__: each for each in (words.plain, words.count, words.duration, words.moment, words.share)
    }
    weights = {each["kind"]: each["weight"] for each in report["kinds"]}
    data = {
        "columns": evidence.COLUMNS,
        "findings": evidence.rows(report, archive),
        "objects": evidence.objects_at(archive, path),
        "broken": [kind for kind, weight in weights.items() if weight == "broken"],
        "hops": words.HOPS,
    }
    text = environment.get_template("page.html.j2").render(
        report=report,
        totals=report["totals"],
        covered=words.covered(report["coverage"]),
        reasons=[words.reason(each) for each in report["reasons"]],
        rests_on=words.RESTS_ON,
        heat=drawings.heat_map(report["hours"]),
        bands=drawings.BANDS,
        flow=drawings.flow(report["flow"]),
        flow_width=drawings.FLOW_WIDTH,
        latencies=drawings.latencies(report["latency"]),
        by_device=_devices(report),
        lost_elsewhere=report["totals"]["lost"] - sum(each["lost"] for each in report["hours"]),
        copies=_copies(report),
        hops=words.HOPS,
        found=sum(each["count"] for each in report["kinds"]),
        style=pages.text_of(_HERE / "page.css"),
        script=pages.text_of(_HERE / "page.js"),
        data=pages.embedded(data),
    )
    path.write_text(text, encoding="utf-8")


def _devices(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the devices of the map with what they lack over all hops, and what their manifests cover."""
    known = {each["client_id"]: each for each in reversed(report["devices"])}
    rows = drawings.by_device(report["hours"])
    # A silent device has no hour.
    silent = [
        {"client_id": name, **dict.fromkeys(drawings.COUNTS, 0)}
        for name in known
        if name not in {row["client_id"] for row in rows}
    ]
    names = ("coverage", "gaps", "explained", "not_stored", "tap_copies", "skew_ms")
    return [
        {**row, **{name: known.get(row["client_id"], {}).get(name) for name in names}}
        for row in silent + rows
    ]


def _copies(report: Mapping[str, Any]) -> list[tuple[str, int, dict[str, str]]]:
    """Return where copies beyond the first are, how many, and the filter of their findings."""
    channels: Counter[str] = Counter()
    for each in report["consumers"]:
        channels[each["channel"]] += each["duplicated"]
    found = [
        ("sent again by devices", report["totals"]["tap_copies"], {"hop": "device_cloud"}),
        *(
            (f"in the inbox, {each['route']}", each["duplicated"], {"hop": "router", "route": each["route"]})
            for each in report["routes"]
        ),
        *((f"handed over, {name}", copies, {"hop": "inbox_consumer"}) for name, copies in channels.items()),
    ]
    named = ((name, copies, {"kind": "duplicate", **where}) for name, copies, where in found if copies)
    return sorted(named, key=lambda each: -each[1])
