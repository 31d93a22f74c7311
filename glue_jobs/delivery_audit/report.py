"""The audit's result as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit import devices, ledger, quarantine
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.dead_letters import dead_letters
from glue_jobs.delivery_audit.deliveries import Verdict
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

_COUNTS = ("expected", *(str(each) for each in Verdict), "duplicated", "replayed", "events", "tap_copies")


def report(audit: Audit, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document. Counts are events, messages or rows as their names say; times are Unix milliseconds.

    `before` is the data of the last verdict on the same window.
    """
    by_route = _routes(audit)
    letters = dead_letters(audit.deliveries, audit.ledger, audit.refusals)
    bad_rows = [row.asDict() for row in quarantine.summary(audit.quarantine).collect()]
    every_device = devices.devices(audit.devices).collect()
    consumers = [row.asDict() for row in audit.consumers.orderBy("date", "channel").collect()]
    kinds = [row.asDict() for row in _kinds(audit).collect()]
    totals = {name: sum(route[name] for route in by_route) for name in _COUNTS}
    events = totals.pop("events")
    young_items = _young_items(audit)
    lost = {
        Hop.DEVICE_CLOUD: sum(row["lost"] for row in every_device),
        # A refused item without a record has vanished as much as a lost event.
        Hop.ROUTER: totals["lost"] + sum(letter["missing"] for letter in letters) - young_items,
        Hop.INBOX_CONSUMER: sum(row["lost"] for row in consumers),
    }
    pending = {
        Hop.DEVICE_CLOUD: sum(row["pending"] for row in every_device),
        Hop.ROUTER: totals["pending"] + young_items,
        Hop.INBOX_CONSUMER: sum(row["pending"] for row in consumers),
    }
    totals = {
        "events_archived": events,
        **totals,
        "lost": sum(lost.values()),
        "pending": sum(pending.values()),
        "dead_lettered": sum(letter["count"] for letter in letters)
        + sum(row["dead_lettered"] for row in consumers),
        "device_gave_up": sum(row["explained"] + row["not_stored"] for row in every_device),
        "quarantined": sum(row["rows"] for row in bad_rows),
        "findings": sum(row["count"] for row in kinds if row["kind"] in BROKEN),
        "devices": len({row["client_id"] for row in every_device}),
        "to_replay": audit.replay.count(),
    }
    measured = latency(audit.deliveries, audit.consumptions)
    broken_first = ~sf.col("kind").isin([str(kind) for kind in BROKEN])
    shown = audit.findings.orderBy(
        broken_first, "kind", "hop", "device", "epoch", "sequence", "source", "id", "route"
    )
    return {
        "format": FORMAT,
        "verdict": verdict_of(totals),
        "window": {"date": str(audit.window), **audit.extent.asDict()},
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
        "by_destination": {
            row["destination"]: {name: row[name] for name in ("delivered_unique", "delivered_total")}
            for row in ledger.by_destination(audit.ledger).collect()
        },
        "consumers": consumers,
        "latency": [
            {name: row[name] for name in row if name != "route"} for row in measured if row["route"] is None
        ],
        "latency_by_route": [row for row in measured if row["route"] is not None],
        "devices": [row.asDict() for row in every_device[:MAX_DEVICES]],
        "dead_letters": letters,
        "kinds": kinds,
        "findings": [row.asDict() for row in shown.limit(MAX_FINDINGS).collect()],
        "quarantine": bad_rows,
        "limits": {"findings": MAX_FINDINGS, "devices": MAX_DEVICES},
    }


def _kinds(audit: Audit) -> DataFrame:
    """How many findings of each `kind` at each `hop`."""
    counted = audit.findings.groupBy("kind", "hop").agg(sf.count(sf.lit(1)).alias("count"))
    return counted.orderBy("kind", "hop")


def _young_items(audit: Audit) -> int:
    """Refused items without a record that may still come."""
    young = audit.refusals.where(audit.watermark.is_open(sf.col("accepted_at_ms")))
    return int(young.agg(sf.coalesce(sf.sum("missing"), sf.lit(0))).collect()[0][0])


def _routes(audit: Audit) -> list[dict[str, Any]]:
    """The days' figures summed by route."""
    summed: dict[str, dict[str, Any]] = {}
    for row in audit.routes.orderBy("date", "route").collect():
        route = summed.setdefault(
            row["route"], {"route": row["route"], "destination": None, **dict.fromkeys(_COUNTS, 0)}
        )
        route["destination"] = row["destination"] or route["destination"]
        for name in _COUNTS:
            route[name] += row[name]
    return [summed[name] for name in sorted(summed)]


def _contract_versions(audit: Audit) -> list[dict[str, Any]]:
    return [
        {"version": use.contract.version, "name": use.contract.name, "first_used_ms": use.first_used_ms}
        for use in audit.history.uses
    ]
