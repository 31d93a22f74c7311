"""The page itself: one file that needs nothing else, verdict first, everything down to the evidence."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment

from contract import pages
from lab.audit_page import drawings, words
from lab.audits import both_ends

PAGE: Final = "audit.html"
"""The page's name beside the report that it shows."""

_HERE: Final = Path(__file__).parent

COLUMNS: Final = (
    "kind",
    "hop",
    "detail",
    "device",
    "epoch",
    "sequence",
    "source",
    "id",
    "type",
    "route",
    "destination",
    "contract_version",
    "archive_file",
)
"""What the page shows of a finding, in its words; then come its time and the command."""

_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def environment(*folders: Path) -> Environment:
    """Return the templates of `folders` and this one, with filters that write a report's values in words."""
    made = pages.environment(*folders, _HERE)
    filters = words.plain, words.count, words.duration, words.moment, words.share
    made.filters |= {each.__name__: each for each in filters}
    return made


def write_page(report: Mapping[str, Any], path: Path, archive: str | None = None) -> None:
    """Write the page of the audit's `report` (its document, format 3).

    `archive` is where the audited archive lies, for the page's links and commands; None: no links, and the
    commands are for the archive of an environment.
    """
    weights = {each["kind"]: each["weight"] for each in report["kinds"]}
    data = {
        "columns": COLUMNS,
        "findings": rows(report, archive),
        "objects": objects_at(archive, path),
        "broken": [kind for kind, weight in weights.items() if weight == "broken"],
        "hops": words.HOPS,
    }
    text = (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            totals=report["totals"],
            covered=words.covered(report["coverage"]),
            ends=both_ends(report),
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


def rows(report: Mapping[str, Any], archive: str | None) -> list[list[Any]]:
    """Return the report's findings: `COLUMNS`, the time (UTC), and the command or None."""
    return [
        [*(each.get(name) for name in COLUMNS), words.moment(each.get("at_ms")), trace_command(each, archive)]
        for each in report["findings"]
    ]


def objects_at(archive: str | None, page: Path) -> str | None:
    """Return what stands before an object's name in a link from `page`; None where no link can be made."""
    if archive is None:
        return None
    if archive.startswith("s3://"):
        bucket, _, prefix = archive.removeprefix("s3://").strip("/").partition("/")
        return f"https://s3.console.aws.amazon.com/s3/buckets/{bucket}?prefix={prefix and f'{prefix}/'}"
    return quote(os.path.relpath(archive, page.parent)) + "/"


def trace_command(finding: Mapping[str, Any], archive: str | None) -> str | None:
    """Return what follows the finding's event through the `archive` (None: that of the environment).

    None where the archive does not know the event's name: it never came, or was no event.
    """
    if not finding.get("source") or not finding.get("id"):
        return None
    command = ["eventplane", "trace"]
    days = sorted({*_DAY.findall(finding.get("archive_file") or ""), finding.get("date") or ""} - {""})
    if days:
        # What happened shortly before midnight may lie in the next day's folder.
        command += ["--from", days[0], "--to", str(date.fromisoformat(days[-1]) + timedelta(days=1))]
    if archive:
        command += ["--archive", archive]
        if finding.get("contract_version") and not archive.startswith("s3://"):
            command += ["--contract", f"{archive.rstrip('/')}/contracts/{finding['contract_version']}.json"]
    # A device chooses the names of its events; they must not become options.
    return shlex.join([*command, "--", finding["source"], finding["id"]])
