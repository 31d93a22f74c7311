"""What else the archive tells: dead letters, bad rows, latencies, devices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventplane.delivery import DEAD_LETTER_TYPE
from tests.spark.reading import Audit, by_route, faults
from tests.spark.small_archive import ALARM, NOON_MS, READING, SmallArchive, small_contract


def test_a_refused_item_has_a_dead_letter(archive: SmallArchive, audit: Audit) -> None:
    archive.send()
    rows = archive.refuse(b'{"specversion":"1.0"')
    # The message came again: it was recorded again and the letter sent again.
    archive.ledger += [replace(row, attempt=2) for row in rows]
    report = audit()
    assert faults(report) == {"dead_lettered": 1, "duplicated": 1}
    assert report["dead_letters"] == [{"place": "cloud", "reason": "not_json", "count": 1, "missing": 0}]
    assert report["totals"]["internal"] == 1
    assert report["by_destination"]["help.inbox"] == {
        "delivered_unique": 1,
        "delivered_total": 2,
        "may_expire": 0,
    }


def test_a_refused_item_without_a_record_is_lost(archive: SmallArchive, audit: Audit) -> None:
    archive.refuse(b"garbage 1")
    archive.refuse(b"garbage 2")
    del archive.ledger[-2:]
    report = audit()
    assert faults(report) == {"lost": 1, "dead_lettered": 1}
    assert report["dead_letters"] == [{"place": "cloud", "reason": "not_json", "count": 1, "missing": 1}]
    finding = report["findings"][0]
    assert (finding["kind"], finding["device"], finding["id"]) == ("lost", "home-1", None)
    assert finding["detail"] == "no record of an item refused as not_json"


def test_the_same_garbage_from_two_devices_is_not_mistaken(archive: SmallArchive, audit: Audit) -> None:
    archive.refuse(b"garbage", "home-1")
    archive.refuse(b"garbage", "home-2")
    archive.ledger = archive.ledger[:2] + archive.ledger[:2]
    report = audit()
    assert report["totals"]["lost"] == 1
    assert report["findings"][0]["device"] == "home-2"


def test_dead_letters_of_devices_are_events_and_are_counted(archive: SmallArchive, audit: Audit) -> None:
    archive.contract = small_contract(
        letters={"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "care.inbox"}
    )
    archive.contracts = [archive.contract]
    archive.send(DEAD_LETTER_TYPE, deadletterreason="not_utf8")
    report = audit()
    assert faults(report) == {"dead_lettered": 1}
    assert report["dead_letters"] == [{"place": "device", "reason": "not_utf8", "count": 1, "missing": 0}]
    assert by_route(report, "letters")["delivered"] == 1


def test_bad_rows_are_quarantined_with_a_reason(
    archive: SmallArchive, audit: Audit, spark: SparkSession, tmp_path: Path
) -> None:
    archive.send()
    good_tap, good_ledger = archive.tap[0], archive.ledger[0]
    archive.tap.append(replace(good_tap, event="{half an event"))
    archive.tap.append(replace(good_tap, event=None))
    archive.tap.append(replace(good_tap, event=None, refusal="not_json"))
    archive.tap.append(replace(good_tap, accepted_at_ms=10**18))
    archive.ledger.append(replace(good_ledger, destination=None))
    archive.bad_lines = [
        ("tap", '{"accepted_at_ms": 12'),
        ("ledger", '{"decided_at_ms": "noon"}'),
        ("ledger", "{}"),
        ("ledger", json.dumps({"source": "s", "outcome": "eaten"})),
    ]
    report = audit()
    assert faults(report) == {"quarantined": 9}
    assert {(row["archive"], row["reason"]): row["rows"] for row in report["quarantine"]} == {
        ("tap", "unreadable_line"): 1,
        ("tap", "event_without_identity"): 1,
        ("tap", "neither_event_nor_refusal"): 1,
        ("tap", "refusal_without_bytes"): 1,
        ("tap", "impossible_time"): 1,
        ("ledger", "unreadable_line"): 1,
        ("ledger", "delivered_nowhere"): 1,
        ("ledger", "missing_member"): 2,
    }
    # In = good + quarantined.
    assert report["window"]["tap_rows"] == 1 + 5
    assert report["window"]["ledger_rows"] == 1 + 4
    kept = spark.read.parquet(str(tmp_path / "audit" / "quarantine"))
    assert (
        kept.where("archive = 'tap' and reason = 'unreadable_line'").collect()[0]["text"]
        == '{"accepted_at_ms": 12'
    )


def test_latency_by_hop_and_priority(archive: SmallArchive, audit: Audit) -> None:
    archive.send(ALARM)
    for _ in range(3):
        archive.send(READING)
    archive.ledger[-1] = replace(archive.ledger[-1], decided_at_ms=NOON_MS + 5_000)
    report = audit()
    measured = {(row["hop"], row["priority"]): row for row in report["latency"]}
    assert measured["device_to_cloud", "urgent"]["p50_ms"] == 1_000
    assert measured["cloud_to_inbox", "normal"] == {
        "hop": "cloud_to_inbox",
        "priority": "normal",
        "samples": 3,
        "p50_ms": 40,
        "p95_ms": pytest.approx(4_504),
        "p99_ms": pytest.approx(4_900.8),
        "max_ms": 5_000,
    }
    assert measured["device_to_inbox", "urgent"]["max_ms"] == 1_040
    assert measured["device_to_inbox", "normal"]["max_ms"] == 6_000


def test_a_device_s_numbers_show_gaps(archive: SmallArchive, audit: Audit) -> None:
    for _ in range(2):
        archive.send()
    for _ in range(3):
        archive.event()  # numbered, but never seen by the tap
    archive.send()
    plain = archive.event(home="simple").json.replace(
        '"deviceepoch":"e1-simple","devicesequence":"000000000001",', ""
    )
    archive.accept(replace(archive.event(home="other"), json=plain), "simple")
    report = audit()
    numbered, simple = report["devices"]
    shown = {
        "client_id": "home-1",
        "epoch": "e1",
        "first": 1,
        "last": 6,
        "events": 3,
        "gaps": 3,
        "tap_copies": 0,
        "stated": 0,
        "missing": 0,
        "explained": 0,
        "lost": 0,
        "acknowledged_lost": 0,
        "pending": 0,
        "not_stored": 0,
        "skew_ms": 0,
    }
    assert {name: numbered[name] for name in shown} == shown
    assert (simple["client_id"], simple["epoch"], simple["events"], simple["gaps"]) == (
        "simple",
        None,
        1,
        None,
    )
