"""The audit's result as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit import devices
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.figures import ROUTE_COUNTS
from glue_jobs.delivery_audit.findings import BROKEN
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.latency import latency
from glue_jobs.delivery_audit.verdict import revision, verdict_of

FORMAT = 2
"""The version of the document's own format."""

MAX_FINDINGS = 1_000
"""Most findings in the document; all of them are in the table. Ours: a document that people can open."""

MAX_DEVICES = 1_000
"""Most devices in the document, those with most gaps first; all of them are in the table."""

MAX_HOURLY = 200
"""Most devices whose hours are in the document, the worst of those shown. Ours: what a picture can show."""


def report(audit: Audit, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document. Counts are events, messages or rows as their names say; times are Unix milliseconds.

    `before` is the data of the last verdict on the same window.
    """
    figures = audit.figures
    by_route, letters, consumers = _routes(figures.routes), figures.dead_letters, figures.consumers
    fleet = devices.totals(audit.devices)
    worst = devices.worst(audit.devices, MAX_DEVICES)
    hourly = list(dict.fromkeys(row["client_id"] for row in worst))[:MAX_HOURLY]
    kinds = _kinds(audit.findings)
    totals = {name: sum(route[name] for route in by_route) for name in ROUTE_COUNTS}
    events, young_items = totals.pop("events"), figures.sum("young_items")
    lost = {
        Hop.DEVICE_CLOUD: fleet["lost"] - fleet["acknowledged_lost"],
        Hop.IOT_RULE: fleet["acknowledged_lost"],
        # A refused item without a record has vanished as much as a lost event.
        Hop.ROUTER: totals["lost"] + sum(letter["missing"] for letter in letters) - young_items,
        Hop.INBOX_CONSUMER: sum(row["lost"] for row in consumers),
    }
    pending = {
        Hop.DEVICE_CLOUD: fleet["pending"],
        # Where it is lost is judged once it is.
        Hop.IOT_RULE: 0,
        Hop.ROUTER: totals["pending"] + young_items,
        Hop.INBOX_CONSUMER: sum(row["pending"] for row in consumers),
    }
    dead_lettered = sum(letter["count"] for letter in letters)
    totals = {
        "events_archived": events,
        **totals,
        "lost": sum(lost.values()),
        "acknowledged_lost": lost[Hop.IOT_RULE],
        "pending": sum(pending.values()),
        "dead_lettered": dead_lettered + sum(row["dead_lettered"] for row in consumers),
        "device_gave_up": fleet["explained"] + fleet["not_stored"],
        "quarantined": sum(row["rows"] for row in figures.quarantine),
        "findings": sum(row["count"] for row in kinds if row["kind"] in BROKEN),
        "devices": fleet["devices"],
        "to_replay": figures.sum("to_replay"),
    }
    measured = latency(audit.deliveries)
    return {
        "format": FORMAT,
        "verdict": verdict_of(totals),
        "window": {"date": str(audit.window), **figures.extent},
        "watermark": audit.watermark.as_dict(),
        "revision": revision(before, totals),
        "contract_versions": _contract_versions(audit),
        "totals": totals,
        "lost_by_hop": {str(hop): count for hop, count in lost.items()},
        "pending_by_hop": {str(hop): count for hop, count in pending.items()},
        "routes": [
            {name: route[name] for name in route if name not in ("events", "tap_copies")}
            for route in by_route
        ],
        "by_destination": figures.by_destination,
        "consumers": consumers,
        "latency": [
            {name: row[name] for name in row if name != "route"} for row in measured if row["route"] is None
        ],
        "latency_by_route": [row for row in measured if row["route"] is not None],
        "devices": [row.asDict() for row in worst],
        "hours": [row.asDict() for row in devices.hours(audit.devices, hourly)] if hourly else [],
        "dead_letters": letters,
        "kinds": kinds,
        "findings": _shown(audit.findings) if kinds else [],
        "quarantine": figures.quarantine,
        "limits": {"findings": MAX_FINDINGS, "devices": MAX_DEVICES, "hourly": MAX_HOURLY},
    }


def _kinds(findings: DataFrame) -> list[dict[str, Any]]:
    """How many findings of each `kind` at each `hop`."""
    counted = findings.groupBy("kind", "hop").agg(sf.count(sf.lit(1)).alias("count")).collect()
    return [row.asDict() for row in sorted(counted, key=lambda row: (row["kind"], row["hop"]))]


def _shown(findings: DataFrame) -> list[dict[str, Any]]:
    broken_first = ~sf.col("kind").isin([str(kind) for kind in BROKEN])
    order = "kind", "hop", "device", "epoch", "sequence", "source", "id", "route"
    return [row.asDict() for row in findings.orderBy(broken_first, *order).limit(MAX_FINDINGS).collect()]


def _routes(by_day: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The days' figures summed by route."""
    summed: dict[str, dict[str, Any]] = {}
    for row in by_day:
        route = summed.setdefault(
            row["route"], {"route": row["route"], "destination": None, **dict.fromkeys(ROUTE_COUNTS, 0)}
        )
        route["destination"] = row["destination"] or route["destination"]
        for name in ROUTE_COUNTS:
            route[name] += row[name]
    return [summed[name] for name in sorted(summed)]


def _contract_versions(audit: Audit) -> list[dict[str, Any]]:
    return [
        {"version": use.contract.version, "name": use.contract.name, "first_used_ms": use.first_used_ms}
        for use in audit.history.uses
    ]
