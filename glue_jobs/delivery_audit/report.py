"""The audit's result as one JSON document."""

from __future__ import annotations

from typing import Any

from glue_jobs.delivery_audit import devices, ledger, quarantine
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.dead_letters import dead_letters
from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.latency import latency

FORMAT = 1
"""The version of the document's own format."""

MAX_FINDINGS = 1_000
"""Most findings in the document; all of them are in the table. Ours: a document that people can open."""

MAX_DEVICES = 1_000
"""Most devices in the document, those with most gaps first; all of them are in the table."""

_COUNTS = ("expected", *(str(each) for each in Verdict), "duplicated", "events", "tap_copies")


def report(audit: Audit) -> dict[str, Any]:
    """The document. Counts are events, messages or rows as their names say; times are Unix milliseconds."""
    by_route = _routes(audit)
    letters = dead_letters(audit.deliveries, audit.ledger, audit.refusals)
    bad_rows = [row.asDict() for row in quarantine.summary(audit.quarantine).collect()]
    totals = {name: sum(route[name] for route in by_route) for name in _COUNTS}
    events = totals.pop("events")
    totals = {
        "events_archived": events,
        **totals,
        # A refused item without a record has vanished as much as a lost event.
        "lost": totals["lost"] + sum(letter["missing"] for letter in letters),
        "dead_lettered": sum(letter["count"] for letter in letters),
        "quarantined": sum(row["rows"] for row in bad_rows),
        "findings": audit.findings.count(),
        "devices": audit.devices.select("client_id").distinct().count(),
    }
    shown = audit.findings.orderBy("kind", "source", "id", "route").limit(MAX_FINDINGS)
    return {
        "format": FORMAT,
        "window": {"date": str(audit.window), **audit.extent.asDict()},
        "contract_versions": _contract_versions(audit),
        "totals": totals,
        "routes": [
            {name: route[name] for name in route if name not in ("events", "tap_copies")}
            for route in by_route
        ],
        "by_destination": {
            row["destination"]: {name: row[name] for name in ("delivered_unique", "delivered_total")}
            for row in ledger.by_destination(audit.ledger).collect()
        },
        "latency": latency(audit.deliveries),
        "devices": [row.asDict() for row in devices.devices(audit.devices).limit(MAX_DEVICES).collect()],
        "dead_letters": letters,
        "findings": [row.asDict() for row in shown.collect()],
        "quarantine": bad_rows,
        "limits": {"findings": MAX_FINDINGS, "devices": MAX_DEVICES},
    }


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
