"""Many groups together: what the driver keeps of them is bounded."""

from __future__ import annotations

from collections import Counter

from glue_jobs.delivery_audit.contracts import ContractHistory, Use
from glue_jobs.delivery_audit.event_group import LedgerRow, NotInTap, ReplayRow, TapRow
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import MAX_FINDINGS, Judged, Task, judge_rows
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window
from local.archive_generator.contracts import MOTION, audited_contracts

AS_OF_MS = 1_775_001_600_000
NOON_MS = 1_772_366_400_000
LOST = 5 * MAX_FINDINGS


def test_more_findings_than_the_driver_keeps_are_counted_and_returned() -> None:
    contract, _ = audited_contracts()
    rules = Rules(ContractHistory((Use(contract, None),)), Watermark(AS_OF_MS), Window())
    task = Task(rules, frozenset(), frozenset())
    events = (
        TapRow(1, "m", at, 2, "tap/x", "home-1", "a", "/s", str(at), MOTION, routes=("day-to-family",))
        for at in range(LOST)
    )
    rows = ((event.place, 0, event, None, None, None, None) for event in events)
    found = list(judge_rows(task, rows))
    judged = found[-1]
    assert isinstance(judged, Judged)
    types = Counter(map(type, found))
    assert types == {Finding: LOST, ReplayRow: LOST, Judged: 1}
    assert judged.kinds == {("lost", "router"): LOST}
    assert MAX_FINDINGS <= len(judged.worst) <= 2 * MAX_FINDINGS
    assert not judged.judgement.findings
    assert not judged.judgement.replay
    total = Judged()
    for _ in range(5):
        total.add(judged)
    assert total.kinds == {("lost", "router"): 5 * LOST}
    assert len(total.worst) <= 2 * MAX_FINDINGS


def test_what_the_tap_does_not_have_is_returned_and_not_kept() -> None:
    """A day without a tap has millions of such rows."""
    contract, _ = audited_contracts()
    task = Task(
        Rules(ContractHistory((Use(contract, None),)), Watermark(AS_OF_MS), Window()),
        frozenset(),
        frozenset(),
    )
    uplink = contract.device.outbox.address
    named = (None, "home-1", "day-to-family", "family.inbox", "delivered", None, 1, "m", "home-1/a")
    rows = (
        (
            at,
            0,
            None,
            LedgerRow(NOON_MS, NOON_MS, uplink, contract.version, "/s", str(at), MOTION, *named),
            *[None] * 3,
        )
        for at in range(LOST)
    )
    *found, judged = judge_rows(task, rows)
    assert isinstance(judged, Judged)
    assert sum(isinstance(each, NotInTap) for each in found) == LOST
    assert not judged.judgement.not_in_tap
