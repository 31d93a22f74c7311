"""The audit's verdict as an event of the plane. Pure: the totals and the times are parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventplane.auditor import VERDICT
from eventplane.envelope import Envelope, write_event
from eventplane.timestamps import timestamp_of_ms

SOURCE = "/audit/delivery"

PROVEN, OPEN, BROKEN = "proven", "open", "broken"
"""All judged and delivered; nothing missed so far, but not all could be judged; a promise is broken."""


def verdict_of(totals: Mapping[str, Any]) -> str:
    """The verdict in one word. Rows that cannot be read have no judgement, so they leave it open."""
    if totals["findings"]:
        return BROKEN
    return OPEN if totals["pending"] or totals["quarantined"] else PROVEN


def verdict_event(document: Mapping[str, Any]) -> Envelope:
    """The event of a report. The same audit made again has the same id; a revised one has another."""
    window, as_of_ms = document["window"]["date"], document["watermark"]["as_of_ms"]
    attributes = {
        "id": f"{window}-{as_of_ms}",
        "source": SOURCE,
        "type": VERDICT,
        "subject": window,
        "time": timestamp_of_ms(as_of_ms),
    }
    members = ("verdict", "window", "watermark", "totals", "revision")
    return write_event(attributes, {name: document[name] for name in members})


def revision(before: Mapping[str, Any] | None, totals: Mapping[str, Any]) -> dict[str, Any]:
    """How `totals` differ from the last verdict on the same window (None: there was none).

    `number` counts from 0; `changed` has [before, now] for each figure that is another.
    """
    if before is None:
        return {"number": 0, "changed": {}}
    told = before["totals"]
    changed = {name: [told.get(name), now] for name, now in totals.items() if told.get(name) != now}
    return {"number": before["revision"]["number"] + 1, "changed": changed}
