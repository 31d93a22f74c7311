"""The verdict of a run: what was sent, what arrived, what the audit found, and whether the three agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from glue_jobs.delivery_audit.findings import BROKEN_KINDS
from lab.audits import both_ends
from lab.oracle import ServiceResult
from lab.services import CALL_SERVICE, ON_DEVICE

ALARM_CENTRE: Final = "alarm-centre"

IRREGULAR: Final = ("misrouted", "unexplained", "unrecorded", "not_understood", "quarantined")
"""Totals of the audit that a healthy plane leaves at 0."""

FOUND: Final = tuple(str(kind) for kind in BROKEN_KINDS if kind not in ("lost", *IRREGULAR))
"""The kinds of findings that break a promise and have no total of their own."""

ENDED: Final = ("dead_lettered", "expired", "dropped")
"""The kinds of the audit's findings about events that have another end than to be lost."""

MAX_EVIDENCE: Final = 100
"""Most lost or unexpected events that a summary names for one service, or of a deleted object."""


def summarise(
    *,
    run: Mapping[str, Any],
    sent: Mapping[str, int],
    verdicts: Sequence[ServiceResult],
    faults: Sequence[Mapping[str, Any]],
    dead_lettered: int,
    audit: Mapping[str, Any],
    deletion: Mapping[str, Any] | None = None,
    wall_seconds: float,
    gave_up_waiting_for: Sequence[str],
    otherwise_wrong: Mapping[str, int] | None = None,
    allowed: Collection[str] = (),
) -> dict[str, Any]:
    """The document of `summary.json`.

    `run` says what was played (homes, input, seed, contract_version), `sent` counts it (events_sent,
    urgent_sent, malformed_sent; told: to one home each), `dead_lettered` of the malformed ones arrived,
    `audit` is the Spark job's report, `deletion` what it says of a copy with one object deleted
    (`lab.demo.faults`), where that was tried; `gave_up_waiting_for` names the waits that ended because
    nothing moved any more: it explains what is missing; `otherwise_wrong` is what only this kind of run
    counts. What `rang` in homes and was `taken` by the alarm centre is by the archive's evidence. A run has
    `passed` when nothing is `wrong` but what is `allowed`: nothing is lost by either count, both agree, the
    audit finds no promise broken and nothing irregular, no number of a home's forwarder is missing but those
    of what came down (all else is routed to the cloud, so a gap is a loss, be it of a report that nobody else
    counts), and it has noticed the deletion.
    """
    ends = {
        (each["destination"], each["source"], each["id"])
        for each in audit["findings"]
        if each["kind"] in ENDED
    }
    services = [_service(verdict, ends) for verdict in verdicts]
    lost, ended = (sum(each[name] for each in services) for name in ("lost", "ended_otherwise"))
    unexpected = sum(len(verdict.unexpected) for verdict in verdicts)
    audited = audited_by_service(audit)
    agrees = all(
        verdict.delivered + len(verdict.unexpected) + verdict.reports == audited.get(verdict.service, 0)
        for verdict in verdicts
        if verdict.service not in ON_DEVICE
    )
    audit_lost = audit["totals"]["lost"]
    irregular = {name: audit["totals"][name] for name in IRREGULAR}
    for kind in FOUND:
        irregular[kind] = sum(row["count"] for row in audit["kinds"] if row["kind"] == kind)
    # A home numbers what comes down like all that it stores; it stays in the home.
    irregular["numbers missing"] = abs(numbers_missing(audit) - sent["told"])
    is_wrong = {
        "lost": lost,
        "ended otherwise": ended,
        "unexpected": unexpected,
        "audit lost": audit_lost,
        "audit disagrees": not agrees,
        "deletion unnoticed": deletion is not None and not deletion["noticed"],
        **irregular,
        **(otherwise_wrong or {}),
    }
    wrong = [name for name, found in is_wrong.items() if found and name not in allowed]
    received = {verdict.service: verdict.delivered for verdict in verdicts}
    by_inbox = {each["inbox"]: each for each in both_ends(audit)}
    return {
        "verdict": "failed" if wrong else "passed",
        "wrong": wrong,
        **run,
        **sent,
        "delivered": received,
        "lost": lost,
        "ended_otherwise": ended,
        "unexpected": unexpected,
        "duplicates": sum(verdict.duplicates for verdict in verdicts),
        "dead_lettered": dead_lettered,
        "device_reports": sum(verdict.reports for verdict in verdicts),
        "faults_injected": len(faults),
        "faults": list(faults),
        "audit_lost": audit_lost,
        "audit_irregular": irregular,
        "audit_agrees": agrees,
        "audited": audited,
        "rang": by_inbox.get(f"{CALL_SERVICE}.inbox"),
        "taken": by_inbox.get(f"{ALARM_CENTRE}.inbox"),
        "ends": list(by_inbox.values()),
        "object_deleted": deletion and {**deletion, "evidence": deletion["evidence"][:MAX_EVIDENCE]},
        "services": services,
        "latency": audit["latency"],
        "gave_up_waiting_for": list(gave_up_waiting_for),
        "wall_seconds": round(wall_seconds, 1),
    }


def unproven(verdicts: Iterable[ServiceResult], audit: Mapping[str, Any]) -> int:
    """Return by how many alarms the counts of homes and alarm centre differ from the archive's receipts."""
    by_inbox = {each["inbox"]: each["taken"] for each in both_ends(audit)}
    alarmed = (each for each in verdicts if each.service in (CALL_SERVICE, ALARM_CENTRE))
    return sum(abs(each.delivered - by_inbox.get(f"{each.service}.inbox", 0)) for each in alarmed)


def numbers_missing(audit: Mapping[str, Any]) -> int:
    """The count of numbers of all devices that the audit has not seen between their first and their last."""
    return sum(device["gaps"] or 0 for device in audit["devices"])


def audited_by_service(audit: Mapping[str, Any]) -> dict[str, int]:
    """The number of different events that the audit found delivered to each service's inbox."""
    return {
        destination.removesuffix(".inbox"): figures["delivered_unique"]
        for destination, figures in audit["by_destination"].items()
    }


def _service(verdict: ServiceResult, ends: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """Return the figures of a service. What has an end by the audit is not lost."""
    lost = [each for each in verdict.lost if (f"{verdict.service}.inbox", *each) not in ends]
    return {
        "service": verdict.service,
        "expected": verdict.expected,
        "received": verdict.delivered,
        "duplicates": verdict.duplicates,
        "reports": verdict.reports,
        "lost": len(lost),
        "ended_otherwise": len(verdict.lost) - len(lost),
        "unexpected": len(verdict.unexpected),
        "lost_events": lost[:MAX_EVIDENCE],
        "unexpected_events": verdict.unexpected[:MAX_EVIDENCE],
    }
