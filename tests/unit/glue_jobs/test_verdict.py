"""The verdict in one word, its reasons, its event and its revisions."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eventplane.archive_layout import last_report
from eventplane.envelope import parse_event
from eventplane.names import VERDICT
from glue_jobs.delivery_audit import findings
from glue_jobs.delivery_audit.findings import Kind
from glue_jobs.delivery_audit.home import HOME
from glue_jobs.delivery_audit.verdict import digest_of, lines, percent, revision, verdict_event, verdict_of
from tests.plane import shipped_contract

NOON_MS = 1_772_366_400_000
TOTALS = {"findings": 0, "pending": 0, "quarantined": 0, "lost": 0, "unrecorded": 0}
COVERED = {
    "share": 1.0,
    "events": {"manifest": 10, "numbering": 0, "tap": 0, "nothing": 0},
    "awaiting": 0,
    "devices": {"expected": 2, "attested": 2, "partly": 0, "silent": 0, "unregistered": 0},
    "fleet": "fleet/date=2026-03-01/hour=00/snapshot.json.gz",
    "cloud_events": 3,
    "home": dict.fromkeys(HOME, 0),
}


def coverage(awaiting: int = 0, fleet: str | None = "fleet/x", **counts: int) -> dict[str, Any]:
    """`COVERED` with other counts of events and devices."""
    events = {name: counts.get(name, number) for name, number in COVERED["events"].items()}  # type: ignore[attr-defined]
    devices = {name: counts.get(name, number) for name, number in COVERED["devices"].items()}  # type: ignore[attr-defined]
    whole = sum(events.values())
    return {
        **COVERED,
        "events": events,
        "devices": devices,
        "awaiting": awaiting,
        "fleet": fleet,
        "share": events["manifest"] / whole if whole else None,
        "home": {name: counts.get(name, 0) for name in HOME},
    }


def kind(name: str, count: int = 1, hop: str = "router") -> dict[str, Any]:
    return {"kind": name, "hop": hop, "count": count}


@pytest.mark.parametrize(
    ("totals", "kinds", "covered", "word", "reasons"),
    [
        ({}, [], COVERED, "proven", ()),
        ({}, [kind("late"), kind("duplicate_object", 2, "archive")], COVERED, "proven", ()),
        ({"pending": 1}, [], COVERED, "open", ("1 delivery without a record, which may still come.",)),
        (
            {},
            [],
            coverage(manifest=9, numbering=1, awaiting=1),
            "open",
            ("1 device event newer than the last manifest that was due.",),
        ),
        (
            {"quarantined": 2},
            [],
            COVERED,
            "incomplete",
            ("2 rows of the archive could not be judged (`quarantine`).",),
        ),
        (
            {"unrecorded": 250},
            [kind("missing_records", 1, "archive")],
            COVERED,
            "incomplete",
            (
                "1 finding of kind `missing_records` on the hop `archive`.",
                "250 deliveries without a record: the archive has a hole there.",
            ),
        ),
        (
            {},
            [],
            coverage(manifest=128, numbering=1_690, tap=208),
            "incomplete",
            ("128 of 2,026 device events attested by manifests: coverage 6.3 %.",),
        ),
        (
            {},
            [],
            coverage(nothing=5),
            "incomplete",
            (
                "10 of 15 device events (5 known by a missing number alone) attested by manifests: "
                "coverage 66.7 %.",
            ),
        ),
        (
            {},
            [],
            coverage(silent=1),
            "incomplete",
            ("1 device expected, and without a message in the window.",),
        ),
        (
            {},
            [],
            coverage(stated=3, receipt=1, unattested=2),
            "incomplete",
            ("2 events for inboxes on devices, of which no manifest says how they ended.",),
        ),
        (
            {},
            [],
            coverage(fleet=None),
            "incomplete",
            ("No list of expected devices: a device that sent nothing would not be missed.",),
        ),
        (
            {"lost": 294, "pending": 1},
            [kind("lost", 1, "device_cloud"), kind("altered_object", 2, "archive"), kind("not_understood")],
            COVERED,
            "broken",
            (
                "294 events lost on the way: device_cloud.",
                "2 findings of kind `altered_object` on the hop `archive`.",
                "1 finding of kind `not_understood` on the hop `router`.",
                "1 delivery without a record, which may still come.",
            ),
        ),
    ],
)
def test_the_verdict_is_proven_only_where_everything_was_judged_and_attested(
    totals: dict[str, int], kinds: list[dict[str, Any]], covered: Any, word: str, reasons: tuple[str, ...]
) -> None:
    verdict = verdict_of({**TOTALS, **totals}, kinds, covered)
    assert (verdict.word, verdict.reasons) == (word, reasons)


def test_each_kind_has_a_text() -> None:
    texts = tomllib.loads(Path(findings.__file__).with_suffix(".toml").read_text())
    assert set(texts) == set(Kind)


def test_less_than_everything_is_never_written_as_everything() -> None:
    assert [percent(share) for share in (1.0, 0.99999, 0.0632, 0.0)] == ["100 %", "99.9 %", "6.3 %", "0.0 %"]


def document(**more: Any) -> dict[str, Any]:
    """A report, as far as its event needs it."""
    return {
        "engine": "spark",
        "verdict": "open",
        "reasons": ["1 delivery without a record, which may still come."],
        "window": {"date": "2026-03-01"},
        "watermark": {"as_of_ms": NOON_MS},
        "coverage": COVERED,
        "totals": TOTALS,
        "revision": revision(None, TOTALS),
        "chain": {"inventory": "a" * 64, "objects": 3, "before": None, "compared": None},
        **more,
    }


def filed(**more: Any) -> bytes:
    return json.dumps(document(**more)).encode()


def test_the_event_is_what_the_contract_says_and_names_its_report() -> None:
    body = filed()
    event = verdict_event(body)
    (schema,) = shipped_contract().event_types[VERDICT].schemas.values()
    jsonschema.validate(event.data(), dict(schema))
    assert parse_event(event.json) == event
    assert event.attributes["time"] == "2026-03-01T12:00:00.000Z"
    assert event.data()["report"] == "reports/2026-03-01/0.json"
    assert event.data()["chain"]["report"] == digest_of(body)


def test_the_same_report_has_the_same_event_and_another_one_another() -> None:
    assert verdict_event(filed()).json == verdict_event(filed()).json
    others = ({"watermark": {"as_of_ms": NOON_MS + 1}}, {"revision": {**revision(None, TOTALS), "number": 1}})
    keys = {verdict_event(filed(**each)).key for each in ({}, *others)}
    assert len(keys) == 3


def test_people_read_verdict_coverage_and_engine_in_a_line_each() -> None:
    report = document(reasons=["First.", "Second."], coverage=coverage(numbering=1_990, silent=1, attested=1))
    assert lines(report) == (
        "verdict:  open. First. And 1 more.",
        "coverage: 0.5 %, 10 of 2,000 device events and 1 of 2 expected devices attested by manifests",
        "engine:   spark",
    )
    at_home = lines({**report, "coverage": coverage(stated=7_004, receipt=7_000, broker=1, lost=3)})
    assert at_home[2:] == (
        "homes:    7,004 events for inboxes on devices: 7,000 confirmed by their readers, "
        "1 taken by the broker, 3 lost",
        "engine:   spark",
    )
    nothing = coverage(manifest=0, expected=0, attested=0)
    assert lines(document(verdict="proven", reasons=[], coverage=nothing))[:2] == (
        "verdict:  proven",
        "coverage: -, 0 of 0 device events and 0 of 0 expected devices attested by manifests",
    )


def test_a_revision_says_what_changed_since_the_last_verdict() -> None:
    first = revision(None, TOTALS)
    assert first == {"number": 0, "replaces": None, "verdict": None, "share": None, "changed": {}}
    before = verdict_event(filed(totals={**TOTALS, "lost": 2}))
    assert revision(before, {**TOTALS, "new": 1}) == {
        "number": 1,
        "replaces": before.id,
        "verdict": "open",
        "share": 1.0,
        "changed": {"lost": [2, 0], "new": [None, 1]},
    }


def test_the_last_report_is_found_by_the_last_verdict(tmp_path: Path) -> None:
    def read(name: str) -> bytes | None:
        return (tmp_path / name).read_bytes() if (tmp_path / name).exists() else None

    assert last_report(read, "all") is None
    body = filed(window={"date": "all"})
    for name, text in (
        ("verdicts/all.json", verdict_event(body).json.encode() + b"\n"),
        ("reports/all/0.json", body),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
    assert last_report(read, "all") == json.loads(body)
