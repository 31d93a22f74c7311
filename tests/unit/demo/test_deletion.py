"""What is deleted by hand from a copy of the archive, and what counts as noticed."""

import pytest

from lab.demo.deletion import Forgotten


@pytest.mark.parametrize(
    ("verdict", "lost", "noticed"),
    [
        ("broken", [("/a", "1"), ("/a", "1")], True),
        ("broken", [("/a", "1"), ("/b", "9")], False),
        ("broken", [], False),
        ("proven", [], False),
    ],
)
def test_only_its_events_are_evidence(verdict: str, lost: list[tuple[str, str]], noticed: bool) -> None:
    findings = [{"kind": "lost", "source": source, "id": id, "route": "r"} for source, id in lost]
    findings.append({"kind": "duplicate", "source": "/b", "id": "9", "route": "r"})
    report = {"verdict": verdict, "totals": {"lost": len(lost)}, "findings": findings}
    seen = Forgotten("ledger/a", frozenset({("/a", "1"), ("/a", "2")})).seen_by(report)
    assert (seen["noticed"], seen["lost"], seen["events"]) == (noticed, len(lost), 2)
    assert seen["evidence"] == sorted({(*key, "r") for key in lost})
