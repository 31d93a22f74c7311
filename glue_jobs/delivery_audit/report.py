"""The audit's result: counts, latencies, and the JSON document that has them all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from heapq import nsmallest
from math import floor
from typing import TYPE_CHECKING, Any, Final

from eventplane.archive_layout import COMPACTED, COMPACTIONS
from eventplane.ledger import TAP
from glue_jobs.common.hours import hour_of
from glue_jobs.delivery_audit.devices import MAX_DEVICES, MAX_HOURLY
from glue_jobs.delivery_audit.event_group import (
    HOUR_MS,
    HoleCount,
    LatencyKey,
    Ruling,
)
from glue_jobs.delivery_audit.figures import ROUTE_COUNTS, Rows
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind, Leg, weight_of, worst_first
from glue_jobs.delivery_audit.home import HOME
from glue_jobs.delivery_audit.judging import MAX_FINDINGS
from glue_jobs.delivery_audit.verdict import revision, trend_row, unattested, verdict_of

if TYPE_CHECKING:
    from glue_jobs.common.archive import ArchivePart
    from glue_jobs.delivery_audit.audit import Audit
    from glue_jobs.delivery_audit.chain import Chain

QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}

FORMAT: Final = 3
"""The version of the document's own format."""

TOTALS: Final = (
    *("events_archived", *(each for each in ROUTE_COUNTS if each != "events"), "dead_lettered"),
    *("device_gave_up", "quarantined", "findings", "devices", "to_replay", "refused_receipts"),
    *("gone_objects", "acknowledged_lost", "unattested", "incomplete"),
)
"""The members of `totals`."""

MAX_FLOW: Final = 40
"""Most rows of the flow that name a device. Ours: what a picture can show."""


def latency(samples: Mapping[LatencyKey, int]) -> list[dict[str, Any]]:
    """Exact quantiles in milliseconds: `hop, priority, route, samples, p50_ms .. max_ms`.

    A row for each hop, priority and route, and one with `route` null for all routes of a priority.

    A sample is one event on one route, at its first delivery. What starts at the device starts at the event's
    `recordedtime`: its `time` says when something happened, which for replayed data is long ago. Events
    without one give no sample there. Where a device's clock runs ahead of the cloud's, a hop is negative.
    """
    counted: defaultdict[tuple[str, str | None, str | None], Counter[int]] = defaultdict(Counter)
    for key, count in samples.items():
        counted[key.span, key.priority, key.route][key.ms] += count
        counted[key.span, key.priority, None][key.ms] += count
    order = {str(span): place for place, span in enumerate(Leg)}
    found = sorted(counted, key=lambda key: (order[key[0]], key[1] or "", key[2] is not None, key[2] or ""))
    return [
        {"hop": span, "priority": priority, "route": route, **_quantiles(counted[span, priority, route])}
        for span, priority, route in found
    ]


def _quantiles(counts: Counter[int]) -> dict[str, Any]:
    """Between two samples a quantile is interpolated, as Spark's `percentile` does."""
    samples, passed = counts.total(), 0
    places = {name: (samples - 1) * share for name, share in QUANTILES.items()}
    between = {name: (floor(place), min(floor(place) + 1, samples - 1)) for name, place in places.items()}
    ranks, at = sorted({rank for pair in between.values() for rank in pair}), dict[int, int]()
    for ms in sorted(counts):
        passed += counts[ms]
        while ranks and ranks[0] < passed:
            at[ranks.pop(0)] = ms
    wanted = {
        name: at[low] + (at[high] - at[low]) * (places[name] - low) for name, (low, high) in between.items()
    }
    return {"samples": samples, **wanted}


def report(audit: Audit, chain: Chain, changes: Sequence[Finding], trend: Rows) -> dict[str, Any]:
    """Return the document. Counts are events, messages or rows as their names say; times are Unix ms.

    `changes` are the findings of the `chain`, `trend` rows about the last verdicts on the days before, oldest
    first (`trend_row`).
    """
    routes = _summed(audit.figures.routes, ("route", "destination"), ROUTE_COUNTS)
    kinds = _kinds(audit.kinds + Counter((str(each.kind), str(each.hop)) for each in changes))
    findings = nsmallest(MAX_FINDINGS, [*audit.findings, *changes], key=worst_first)
    lost, pending = _by_hop(audit, routes)
    totals = _totals(audit, routes, kinds) | {
        "lost": sum(lost.values()),
        "acknowledged_lost": lost[Hop.IOT_RULE],
        "pending": sum(pending.values()),
    }
    shares = {"share": audit.coverage.share, "home_share": audit.coverage.home_share}
    coverage = {**shares, **asdict(audit.coverage)}
    verdict = verdict_of(totals, kinds, coverage)
    totals |= {"unattested": unattested(coverage), "incomplete": verdict.missing}
    measured = latency(audit.judged.judgement.latencies)
    document: dict[str, Any] = {
        "format": FORMAT,
        "engine": audit.engine,
        "verdict": verdict.word,
        "reasons": list(verdict.reasons),
        "checks": [each.row for each in verdict.checks],
        "coverage": coverage,
        "window": {"date": str(audit.window), **audit.figures.extent, **_late(audit)},
        "watermark": audit.watermark.as_dict(),
        "revision": revision(chain.before, totals),
        "chain": chain.as_dict(),
        "archive": {
            "folders": [_folder(name, part) for name, part in audit.parts.items()],
            "holes": _holes(findings, audit),
            "completeness": {
                name: "object" if part.entries else "hour" for name, part in audit.parts.items()
            },
        },
        "contract_versions": [
            {"version": use.contract.version, "name": use.contract.name, "first_used_ms": use.first_used_ms}
            for use in audit.history.uses
        ],
        "roll_outs": [
            {name: getattr(each, name) for name in ("candidate", "from_ms", "to_ms", "is_taken")}
            for each in audit.history.candidacies
        ],
        "totals": totals,
        "lost_by_hop": {str(hop): count for hop, count in lost.items()},
        "pending_by_hop": {str(hop): count for hop, count in pending.items()},
        "days": _summed(audit.figures.routes, ("date",), ROUTE_COUNTS),
        "trend": trend,
        "flow": _flow(findings, routes),
        "routes": [
            {name: route[name] for name in route if name not in ("events", "tap_copies")} for route in routes
        ],
        "accounts": audit.figures.accounts,
        "by_destination": audit.figures.by_destination,
        "consumers": audit.figures.consumers,
        "homes": [
            {"inbox": inbox, **{name: audit.fleet.homes[inbox, name] for name in HOME}}
            for inbox in sorted({inbox for inbox, _ in audit.fleet.homes})
        ],
        "latency": [
            {name: row[name] for name in row if name != "route"} for row in measured if row["route"] is None
        ],
        "latency_by_route": [row for row in measured if row["route"] is not None],
        "devices": audit.fleet.worst,
        "hours": audit.fleet.hours,
        "dead_letters": audit.figures.dead_letters,
        "kinds": kinds,
        "findings": [each._asdict() for each in findings],
        "quarantine": audit.figures.quarantine,
        "limits": {
            "findings": MAX_FINDINGS,
            "devices": MAX_DEVICES,
            "hourly": MAX_HOURLY,
            "flow": MAX_FLOW,
        },
    }
    if audit.window.day:
        document["trend"] = [*trend, trend_row(document)]
    return document


def _late(audit: Audit) -> dict[str, Any]:
    return {} if audit.late_days is None else {"late_days": [*audit.late_days]}


def _by_hop(audit: Audit, routes: Rows) -> tuple[dict[Hop, int], dict[Hop, int]]:
    """Return how many events are lost, and how many pending, by the hop that answers for them."""
    fleet, figures = audit.fleet.totals, audit.figures
    lost, pending = (
        {
            Hop.DEVICE_INBOX: fleet[f"home_{name}"],
            Hop.DEVICE_CLOUD: fleet[name],
            Hop.IOT_RULE: 0,
            # A refused item without a record has vanished as much as a lost event.
            Hop.ROUTER: _sum(routes, name) + figures.items[name],
            Hop.INBOX_CONSUMER: _sum(figures.consumers, name),
        }
        for name in ("lost", "pending")
    )
    # Where something is lost is judged once it is.
    lost[Hop.DEVICE_CLOUD] -= fleet["acknowledged_lost"]
    lost[Hop.IOT_RULE] = fleet["acknowledged_lost"]
    return lost, pending


def _totals(audit: Audit, routes: Rows, kinds: Rows) -> dict[str, int]:
    figures, fleet, consumers = audit.figures, audit.fleet.totals, audit.figures.consumers
    totals = {name: _sum(routes, name) for name in ROUTE_COUNTS}
    unrecorded = fleet["unrecorded"] + _sum([*routes, figures.items, *consumers], "unrecorded")
    return {
        "events_archived": totals.pop("events"),
        **totals,
        Ruling.UNRECORDED.value: unrecorded,
        Ruling.NOT_UNDERSTOOD.value: _sum([*routes, *consumers], "not_understood"),
        "dead_lettered": _sum(figures.dead_letters, "count") + _sum(consumers, "dead_lettered"),
        "device_gave_up": fleet["explained"] + fleet["not_stored"],
        "quarantined": _sum(figures.quarantine, "rows"),
        "findings": sum(row["count"] for row in kinds if row["weight"] == "broken"),
        "devices": fleet["devices"],
        "to_replay": figures.to_replay,
        "refused_receipts": _refused_receipts(audit),
        "gone_objects": sum(each.objects for part in audit.parts.values() for each in part.gone),
    }


def _refused_receipts(audit: Audit) -> int:
    """Return how many receipts the key has not attested if it attested none: it may be the wrong key."""
    attested, parts = audit.chain.attested, audit.parts.values()
    if attested.erased or attested.unfinished or any(part.receipts for part in parts):
        return 0
    refused = (fault.name for part in parts for fault in part.faults if fault.kind == "unattested")
    return len(attested.refused) + sum(name.startswith(f"{COMPACTIONS}/") for name in refused)


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def _summed(rows: Rows, keys: Sequence[str], counts: Iterable[str]) -> Rows:
    """Return the counts summed by the first of `keys`; the others are what the last row with a value has."""
    counts = tuple(counts)
    summed: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = summed.setdefault(row[keys[0]], dict.fromkeys(keys) | dict.fromkeys(counts, 0))
        known |= {name: row[name] or known[name] for name in keys}
        for name in counts:
            known[name] += row[name]
    return [summed[key] for key in sorted(summed)]


def _kinds(counted: Counter[tuple[str, str]]) -> Rows:
    """Return how many findings of each `kind` at each `hop`, and what they make of the verdict."""
    return [
        {"kind": kind, "hop": hop, "count": counted[kind, hop], "weight": weight_of(kind)}
        for kind, hop in sorted(counted)
    ]


def _folder(name: str, part: ArchivePart) -> dict[str, Any]:
    """Return what was read of a folder of the archive; its first and last hour by when they begin."""
    return {
        "folder": name,
        "objects": len(part.objects),
        "compacted": sum(each.name.startswith(f"{COMPACTED}/") for each in part.objects),
        "bytes": sum(each.size for each in part.objects),
        "hours": len(part.hours),
        "first_hour_ms": min((each.start_ms for each in part.hours), default=None),
        "last_hour_ms": max((each.start_ms for each in part.hours), default=None),
    }


def _holes(findings: Iterable[Finding], audit: Audit) -> Rows:
    """Return what is missing or wrong in the archive itself, a row for each finding of that hop."""
    unrecorded = Counter[tuple[str, int]]()
    for key, count in audit.judged.judgement.counts.items():
        if isinstance(key, HoleCount):
            unrecorded[key.archive, key.hour * HOUR_MS] += count
    for at, count in audit.fleet.holes.items():
        unrecorded[TAP, at * HOUR_MS] += count
    rows = []
    for each in sorted(findings, key=lambda each: each.kind != Kind.MISSING_RECORDS):
        if each.hop != Hop.ARCHIVE or each.archive_file is None:
            continue
        folder = each.archive_file.removeprefix(f"{COMPACTED}/").partition("/")[0]
        hour = hour_of(each.archive_file)
        from_ms = hour.start_ms if hour else None
        rows.append(
            {
                "kind": str(each.kind),
                "folder": folder,
                "from_ms": from_ms,
                "until_ms": None if from_ms is None else from_ms + HOUR_MS,
                # One finding of an hour has its extent, whichever it is.
                "unrecorded": unrecorded.pop((folder, from_ms or 0), 0),
                "archive_file": each.archive_file,
                "detail": each.detail,
            }
        )
    return sorted(rows, key=lambda row: (row["kind"], row["archive_file"]))[:MAX_FINDINGS]


def _flow(findings: Iterable[Finding], routes: Rows) -> Rows:
    """Return the way from devices over routes into inboxes: all together, then who lost most and where."""
    lost = Counter(
        (each.device, each.route, each.destination, str(each.hop))
        for each in findings
        if each.kind == Kind.LOST and each.device is not None
    )
    together = [{"device": None, "inbox": row["destination"], **row} for row in routes]
    return [
        *({name: row[name] for name in row if name != "destination"} for row in together),
        *(
            {"device": device, "route": route, "inbox": inbox, "hop": hop, "lost": count}
            for (device, route, inbox, hop), count in lost.most_common(MAX_FLOW)
        ),
    ]
