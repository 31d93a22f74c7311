"""What else the archive has: dead letters, bad rows, latencies."""

from __future__ import annotations

import json
from dataclasses import replace

from eventplane.dead_letter import DEAD_LETTER_TYPE
from glue_jobs.delivery_audit.event_group import LatencyKey
from tests.spark.small_archive import ALARM, DAY, NOON_MS, READING, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import judged


def test_a_refused_item_has_a_dead_letter(archive: SmallArchive) -> None:
    archive.send()
    rows = archive.refuse(b'{"specversion":"1.0"')
    # The message came again: it was recorded again and the letter sent again.
    archive.ledger += [replace(row, attempt=2) for row in rows]
    report = judged(archive)
    assert report.faults() == {"dead_lettered": 1, "duplicated": 1}
    assert report.letters() == {("cloud", "not_json"): (1, 0)}
    assert report.totals["internal"] == 1
    assert report.inboxes()["help.inbox"] == (1, 2, 0)


def test_a_refused_item_without_a_record_is_lost(archive: SmallArchive) -> None:
    archive.refuse(b"garbage 1")
    archive.refuse(b"garbage 2")
    del archive.ledger[-2:]
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 1}
    assert report.letters() == {("cloud", "not_json"): (1, 1)}
    finding = report.findings[0]
    assert (finding.kind, finding.device, finding.id) == ("lost", "home-1", None)
    assert finding.detail == "no record of an item refused as not_json"


def test_the_same_garbage_from_two_devices_is_not_mistaken(archive: SmallArchive) -> None:
    archive.refuse(b"garbage", "home-1")
    archive.refuse(b"garbage", "home-2")
    archive.ledger = archive.ledger[:2] + archive.ledger[:2]
    report = judged(archive)
    assert report.faults()["lost"] == 1
    assert report.findings[0].device == "home-2"


def test_dead_letters_of_devices_are_events_and_are_counted(archive: SmallArchive) -> None:
    archive.contract = small_contract(
        letters={"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "care.inbox"}
    )
    archive.contracts = [archive.contract]
    archive.send(DEAD_LETTER_TYPE, deadletterreason="not_utf8")
    report = judged(archive)
    assert report.faults() == {"dead_lettered": 1}
    assert report.letters() == {("device", "not_utf8"): (1, 0)}
    assert report.route("letters")["delivered"] == 1


def test_rows_that_cannot_be_judged_are_quarantined_with_a_reason(archive: SmallArchive) -> None:
    archive.send()
    good = archive.ledger[0]
    archive.ledger += [
        replace(good, id="nowhere", destination=None),
        replace(good, id="timeless", decided_at_ms=10**18),
        replace(good, id="nameless", entered_by=None),  # type: ignore[arg-type]
    ]
    archive.bad_lines = [("tap", '{"accepted_at_ms": 12'), ("ledger", '{"decided_at_ms": "noon"}')]
    report = judged(archive)
    assert report.faults() == {"quarantined": 5}
    assert report.rows() == {
        ("tap", None): 1,
        ("ledger", None): 1,
        ("tap", "unreadable_line"): 1,
        ("ledger", "unreadable_line"): 1,
        ("ledger", "delivered_nowhere"): 1,
        ("ledger", "impossible_time"): 1,
        ("ledger", "missing_member"): 1,
    }
    texts = {each.reason: each.text for each in report.judgement.quarantine if each.archive == "tap"}
    assert texts == {"unreadable_line": '{"accepted_at_ms": 12'}
    (nowhere,) = (each for each in report.judgement.quarantine if each.reason == "delivered_nowhere")
    assert (nowhere.date, nowhere.file, nowhere.id) == (DAY, good_file("ledger"), "nowhere")
    assert json.loads(nowhere.text or "")["route"] == "readings"


def good_file(archive: str) -> str:
    return f"{archive}/date={DAY}/hour=12/rows.json.gz"


def test_latency_by_hop_and_priority(archive: SmallArchive) -> None:
    archive.send(ALARM)
    for _ in range(3):
        archive.send(READING)
    archive.ledger[-1] = replace(archive.ledger[-1], decided_at_ms=NOON_MS + 5_000)
    assert judged(archive).judgement.latencies == {
        LatencyKey("device_to_cloud", "urgent", "alarms", 1_000): 1,
        LatencyKey("cloud_to_inbox", "urgent", "alarms", 40): 1,
        LatencyKey("device_to_inbox", "urgent", "alarms", 1_040): 1,
        LatencyKey("device_to_cloud", "normal", "readings", 1_000): 3,
        LatencyKey("cloud_to_inbox", "normal", "readings", 40): 2,
        LatencyKey("cloud_to_inbox", "normal", "readings", 5_000): 1,
        LatencyKey("device_to_inbox", "normal", "readings", 1_040): 2,
        LatencyKey("device_to_inbox", "normal", "readings", 6_000): 1,
    }
