"""The report as a document: figures over all hops, holes with their extent, the flow, the worst first."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pytest

from glue_jobs.common.archive import ArchivePart
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Stored
from glue_jobs.delivery_audit import report as module
from glue_jobs.delivery_audit.audit import Audit
from glue_jobs.delivery_audit.chain import Chain, Inventory
from glue_jobs.delivery_audit.contracts import ContractHistory, Use
from glue_jobs.delivery_audit.devices import Fleet
from glue_jobs.delivery_audit.event_group import (
    CountKey,
    DeadLetterCount,
    HoleCount,
    InboxCount,
    LatencyKey,
    RouteCount,
    RowCount,
)
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.home import HOME
from glue_jobs.delivery_audit.judging import Judged
from glue_jobs.delivery_audit.report import latency, report
from glue_jobs.delivery_audit.rules import Watermark, Window
from tests.spark.small_archive import small_contract

DAY = "2026-03-01"
SEVEN = Hour(datetime(2026, 3, 1, 7, tzinfo=UTC))
SEVEN_MS = 1_772_348_400_000


def lost(device: str, hop: str = "router", **more: Any) -> Finding:
    return Finding(DAY, "lost", hop, device=device, **more)


MISSING = Finding(DAY, "missing_records", "archive", archive_file=SEVEN.raw("ledger"), detail="no object")
LATE = Finding(DAY, "late", "router", device="home-1")


@pytest.fixture
def audit() -> Audit:
    """A day on which every hop lost something, and the ledger of one hour is gone."""
    counts: dict[CountKey, int] = {
        RouteCount("expected", DAY, "alarms", "help.inbox"): 12,
        RouteCount("delivered", DAY, "alarms", "help.inbox"): 7,
        RouteCount("lost", DAY, "alarms", "help.inbox"): 2,
        RouteCount("unrecorded", DAY, "alarms", "help.inbox"): 3,
        RouteCount("events", DAY, "alarms", "help.inbox"): 12,
        InboxCount("lost", DAY, "help.inbox"): 1,
        InboxCount("dead_lettered", DAY, "help.inbox"): 1,
        DeadLetterCount("count", "cloud", "too_large"): 4,
        DeadLetterCount("missing", "cloud", "too_large"): 5,
        RowCount("tap"): 12,
        RowCount("ledger"): 9,
        RowCount("handovers"): 2,
        RouteCount("cloud_events", DAY, "alarms", "help.inbox"): 6,
        HoleCount("ledger", SEVEN_MS // 3_600_000): 3,
    }
    judged = Judged(accepted_ms=(SEVEN_MS, SEVEN_MS + 1))
    judged.judgement.counts.update(counts)
    judged.judgement.latencies[LatencyKey("cloud_to_inbox", "urgent", "alarms", 40)] = 7
    fleet = Fleet(
        totals=Counter(
            lost=8,
            acknowledged_lost=3,
            devices=2,
            manifest=9,
            numbering=1,
            pending=1,
            home_stated=9,
            home_lost=2,
        ),
        homes=Counter({("siren.inbox", "stated"): 9, ("siren.inbox", "lost"): 2}),
        standings=Counter(expected=2, attested=1, partly=1),
    )
    nothing: Any = None  # what was read is not looked at again
    part = ArchivePart(
        rows=nothing,
        objects=(Stored("ledger/a", 10, "m"), Stored("compacted/ledger/b", 20, "m")),
        faults=(),
        hours=frozenset({SEVEN}),
    )
    return Audit(
        window=Window(date(2026, 3, 1)),
        watermark=Watermark(SEVEN_MS + 86_400_000),
        history=ContractHistory((Use(small_contract(), None),)),
        judged=judged,
        figures=Figures(judged),
        fleet=fleet,
        coverage=fleet.coverage("fleet/list", 6),
        found={},
        others=[
            LATE,
            MISSING,
            lost("home-2"),
            lost("home-1", route="alarms"),
            lost("home-1", route="alarms"),
        ],
        parts={"ledger": part},
        chain=Chain(Inventory(SEVEN_MS, {}, {"ledger/a": "etag:1"})),
        engine="spark",
    )


@pytest.fixture
def document(audit: Audit) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(report(audit, audit.chain, [], [])))
    return made


def test_what_was_lost_and_what_is_pending_is_split_by_hop(document: dict[str, Any]) -> None:
    by_device = {"device_inbox": 2, "device_cloud": 5, "iot_rule": 3}
    assert document["lost_by_hop"] == {**by_device, "router": 2 + 5, "inbox_consumer": 1}
    assert document["totals"]["lost"] == sum(document["lost_by_hop"].values())
    assert document["totals"]["pending"] == sum(document["pending_by_hop"].values()) == 1
    assert (document["totals"]["dead_lettered"], document["totals"]["unrecorded"]) == (4 + 1, 3)


def test_the_verdict_has_its_reasons_and_what_it_rests_on(document: dict[str, Any]) -> None:
    assert document["verdict"] == "broken"
    assert document["reasons"][0] == "18 events lost on the way: router."
    assert document["homes"] == [{"inbox": "siren.inbox", **dict.fromkeys(HOME, 0), "stated": 9, "lost": 2}]
    assert (document["coverage"]["home"]["lost"], document["coverage"]["home_share"]) == (2, 1.0)
    assert document["coverage"]["share"] == 0.9
    assert document["coverage"]["devices"]["partly"] == 1
    assert document["coverage"]["cloud_events"] == 6
    # The manifest, the device, the hour, its deliveries.
    assert (document["totals"]["unattested"], document["totals"]["incomplete"]) == (1, 4)
    assert {*document["totals"]} == {*module.TOTALS}


def test_a_hole_of_the_archive_has_its_hour_at_its_edges_and_its_extent(document: dict[str, Any]) -> None:
    assert document["archive"]["holes"] == [
        {
            "kind": "missing_records",
            "folder": "ledger",
            "from_ms": SEVEN_MS,
            "until_ms": SEVEN_MS + 3_600_000,
            "unrecorded": 3,
            "archive_file": SEVEN.raw("ledger"),
            "detail": "no object",
        }
    ]
    assert document["archive"]["folders"] == [
        {
            "folder": "ledger",
            "objects": 2,
            "compacted": 1,
            "bytes": 30,
            "hours": 1,
            "first_hour_ms": SEVEN_MS,
            "last_hour_ms": SEVEN_MS,
        }
    ]


def test_the_flow_has_each_route_and_who_lost_most_where(document: dict[str, Any]) -> None:
    together, *named = document["flow"]
    assert (together["device"], together["route"], together["inbox"]) == (None, "alarms", "help.inbox")
    assert (together["delivered"], together["lost"]) == (7, 2)
    assert named == [
        {"device": "home-1", "route": "alarms", "inbox": None, "hop": "router", "lost": 2},
        {"device": "home-2", "route": None, "inbox": None, "hop": "router", "lost": 1},
    ]


def test_the_worst_findings_come_first_and_all_are_counted(
    audit: Audit, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [each["kind"] for each in document["findings"]]
    assert kinds == ["lost", "lost", "lost", "missing_records", "late"]
    weights = {each["kind"]: (each["count"], each["weight"]) for each in document["kinds"]}
    assert weights == {"lost": (3, "broken"), "missing_records": (1, "incomplete"), "late": (1, "allowed")}
    monkeypatch.setattr(module, "MAX_FINDINGS", 2)
    cut = report(audit, audit.chain, [], [])
    assert [each["kind"] for each in cut["findings"]] == ["lost", "lost"]
    assert cut["kinds"] == document["kinds"]


def test_days_and_trend_end_with_the_window(document: dict[str, Any]) -> None:
    assert [(each["date"], each["delivered"], each["lost"]) for each in document["days"]] == [(DAY, 7, 2)]
    assert [(each["date"], each["verdict"], each["share"]) for each in document["trend"]] == [
        (DAY, "broken", 0.9)
    ]
    assert document["window"] == {
        "date": DAY,
        "tap_rows": 12,
        "ledger_rows": 9,
        "handover_rows": 2,
        "first_accepted_ms": SEVEN_MS,
        "last_accepted_ms": SEVEN_MS + 1,
    }


def test_quantiles_by_hop_and_priority_are_interpolated_over_all_routes_and_each() -> None:
    samples = {
        LatencyKey("device_to_inbox", "normal", "readings", -5): 1,
        LatencyKey("cloud_to_inbox", "normal", "readings", 40): 2,
        LatencyKey("cloud_to_inbox", "normal", "diaries", 5_000): 1,
    }
    whole, diaries, readings, *device = latency(samples)
    assert whole == {
        "hop": "cloud_to_inbox",
        "priority": "normal",
        "route": None,
        "samples": 3,
        "p50_ms": 40,
        "p95_ms": pytest.approx(4_504),
        "p99_ms": pytest.approx(4_900.8),
        "max_ms": 5_000,
    }
    assert [(each["route"], each["samples"], each["max_ms"]) for each in (diaries, readings)] == [
        ("diaries", 1, 5_000),
        ("readings", 2, 40),
    ]
    assert [(each["route"], each["p50_ms"]) for each in device] == [(None, -5), ("readings", -5)]
