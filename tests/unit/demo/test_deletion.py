"""What is deleted by hand from a copy of the archive, and what counts as noticed."""

from __future__ import annotations

import pytest

from local.demo.deletion import Deletion


@pytest.mark.parametrize(("place", "noticed"), [("ledger/a", True), ("ledger", True), ("tap/a", False)])
def test_an_object_that_is_gone_is_noticed_as_a_hole(place: str, noticed: bool) -> None:
    hole = {"kind": "missing_records", "archive_file": place}
    report = {"verdict": "incomplete", "totals": {"lost": 0}, "findings": [hole]}
    assert Deletion("ledger/a", frozenset({("/a", "1")})).seen_by(report)["noticed"] == noticed


@pytest.mark.parametrize(
    ("verdict", "lost", "noticed"),
    [
        ("broken", [("/a", "1"), ("/a", "1")], True),
        ("broken", [("/a", "1"), ("/b", "9")], False),
        ("broken", [], False),
        ("proven", [], False),
    ],
)
def test_only_the_objects_own_events_are_evidence(
    verdict: str, lost: list[tuple[str, str]], noticed: bool
) -> None:
    findings = [{"kind": "lost", "source": source, "id": id, "route": "r"} for source, id in lost]
    findings.append({"kind": "duplicate", "source": "/b", "id": "9", "route": "r"})
    report = {"verdict": verdict, "totals": {"lost": len(lost)}, "findings": findings}
    seen = Deletion("ledger/a", frozenset({("/a", "1"), ("/a", "2")})).seen_by(report)
    assert (seen["noticed"], seen["lost"], seen["events"]) == (noticed, len(lost), 2)
    assert seen["evidence"] == sorted({(*key, "r") for key in lost})
