"""The verdict of a run, from the counts of consumers and audit, and what people get to see of it."""

from collections.abc import Collection
from typing import Any

import pytest

from eventplane.account import Fate
from glue_jobs.delivery_audit.home import HOME
from lab.audits import taken
from lab.demo.report import headline
from lab.demo.summary import FOUND, IRREGULAR, summarise, unproven
from lab.oracle import ServiceResult


def verdict(service: str, delivered: int = 10, **changes: Any) -> ServiceResult:
    known: dict[str, Any] = {"expected": delivered, "lost": (), "unexpected": (), "duplicates": 0}
    return ServiceResult(service=service, delivered=delivered, **{**known, **changes})


DEVICE = {"client_id": "h", "epoch": "e", "first": 1, "last": 3, "events": 3, "tap_copies": 0}


def audit(lost: int = 0, irregular: str = "", gaps: int = 0, **delivered: int) -> dict[str, Any]:
    return {
        "totals": {"lost": lost, **{name: int(name == irregular) for name in IRREGULAR}},
        "kinds": [{"kind": irregular, "hop": "router", "count": 1}] if irregular in FOUND else [],
        "by_destination": {
            f"{service}.inbox": {"delivered_unique": count, "delivered_total": count}
            for service, count in delivered.items()
        },
        "latency": [],
        "accounts": [{"inbox": "desk.inbox", **dict.fromkeys(map(str, Fate), 10)}],
        "findings": [
            {"kind": "expired", "source": "/a", "id": id, "destination": f"{service}.inbox"}
            for id, service in (("expired", "desk"), ("1", "others"))
        ],
        "devices": [
            {**DEVICE, "client_id": "<home>", **dict.fromkeys(("epoch", "first", "last", "gaps"))},
            {**DEVICE, "gaps": gaps},
        ],
    }


NOTICED = {
    "object": "ledger/a.json.gz",
    "events": 2,
    "verdict": "broken",
    "lost": 3,
    "noticed": True,
    "evidence": [("/a", "1", "to-desk")],
}


def summary_of(
    verdicts: list[ServiceResult],
    report: dict[str, Any],
    deletion: dict[str, Any] = NOTICED,
    *,
    told: int = 0,
    allowed: Collection[str] = (),
) -> dict[str, Any]:
    return summarise(
        run={"homes": 1, "input": "test", "seed": 1, "contract_version": "v"},
        sent={"events_sent": 10, "urgent_sent": 1, "malformed_sent": 2, "told": told},
        verdicts=verdicts,
        dead_lettered=2,
        faults=[{"kind": "network cut", "home": "home-1", "after_events": 5, "seconds": 3.0}],
        audit=report,
        deletion=deletion,
        wall_seconds=1.23,
        gave_up_waiting_for=["homes drain"],
        allowed=allowed,
    )


def test_a_run_passes_when_nothing_is_lost_and_the_audit_agrees() -> None:
    summary = summary_of(
        [verdict("desk", duplicates=3), verdict("operations", 2, reports=4)], audit(desk=10, operations=6)
    )
    assert summary["verdict"] == "passed"
    assert summary["audit_agrees"]
    # What happens inside a home is not asked of the cloud.
    assert summary_of([verdict("call-service", 5)], audit())["verdict"] == "passed"


@pytest.mark.parametrize(
    ("verdicts", "report", "agrees"),
    [
        ([verdict("desk", 9, expected=10, lost=(("/a", "1"),))], audit(desk=9), True),
        ([verdict("desk", 9, expected=10, lost=(("/a", "expired"),))], audit(desk=9), True),
        ([verdict("desk", unexpected=(("/a", "1"),))], audit(desk=11), True),
        ([verdict("desk")], audit(lost=1, desk=10), True),
        *(([verdict("desk")], audit(irregular=name, desk=10), True) for name in (*IRREGULAR, *FOUND)),
        ([verdict("desk")], audit(gaps=1, desk=10), True),
        ([verdict("desk")], audit(desk=9), False),
        ([verdict("desk", reports=1)], audit(desk=10), False),
        ([verdict("desk")], audit(), False),
    ],
)
def test_each_reason_fails_alone(verdicts: list[ServiceResult], report: dict[str, Any], agrees: bool) -> None:
    summary = summary_of(verdicts, report)
    assert summary["verdict"] == "failed"
    assert summary["audit_agrees"] is agrees
    # What has another end is not lost.
    missing = {key for each in verdicts for key in each.lost}
    assert (summary["lost"], summary["ended_otherwise"]) == (
        ("/a", "1") in missing,
        ("/a", "expired") in missing,
    )


def test_what_rang_and_was_taken_is_by_receipts() -> None:
    alarmed = [verdict("call-service", 3), verdict("alarm-centre", 10)]
    fates = {**dict.fromkeys(map(str, Fate), 0), Fate.HANDLED: 8, Fate.IN_INBOX: 2}
    home = {**dict.fromkeys(HOME, 0), "inbox": "call-service.inbox", "stated": 4, "receipt": 3, "lost": 1}
    report = {**audit(), "homes": [home], "accounts": [{"inbox": "alarm-centre.inbox", **fates}]}
    summary = summary_of(alarmed, report)
    assert [taken(summary[each]) for each in ("rang", "taken")] == ["3 of 4, 1 lost", "8 of 10, 2 not known"]
    assert unproven(alarmed, report) == 2
    assert taken(summary_of([], audit())["rang"]) == "none was due"


def test_what_a_run_allows_is_reported_and_does_not_fail_it() -> None:
    document = summary_of([verdict("desk")], audit(irregular="reordered", desk=10), allowed=["reordered"])
    assert document["verdict"] == "passed"
    assert document["audit_irregular"]["reordered"] == 1


def test_a_run_fails_when_the_audit_does_not_notice_a_deletion() -> None:
    summary = summary_of(
        [verdict("desk")], audit(desk=10), {**NOTICED, "verdict": "proven", "noticed": False}
    )
    assert summary["verdict"] == "failed"
    assert "did not notice that an object of the archive was deleted" in headline(summary)


def test_downlinks_have_numbers_of_the_home() -> None:
    assert summary_of([verdict("voice-service", 2)], audit(gaps=2), told=2)["verdict"] == "passed"
    assert summary_of([verdict("voice-service", 2)], audit(gaps=3), told=2)["verdict"] == "failed"
