"""What Spark reads of an archive is judged as what the core's own records and router say of it.

The rules themselves are tested without Spark (tests/unit/glue_jobs/test_judge_*.py).
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contract import load_contract
from eventplane.contract import compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import router_source
from eventplane.envelope import Envelope, write_event
from eventplane.guarantee import FAILED
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ledger import Basis, HandoverRecord, to_line
from eventplane.limits import MAX_HOPS, MAX_SENT_EVENT_BYTES
from eventplane.names import CANARY_ALARM, CANARY_CLIENT, CANARY_SOURCE
from eventplane.reasons import Outcome, Reason
from tests.spark.reading import Audit, faults
from tests.spark.small_archive import ALARM, DAY, DIARY, NOON_MS, READING, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import judged

HOUR_MS = 3_600_000
ROUTES = {
    "alarms": {"filter": {"exact": {"type": ALARM}}, "to": "help.inbox"},
    "readings": {"filter": {"suffix": {"type": ".reading.v1"}}, "to": "care.inbox"},
    "severe": {
        "filter": {"sql": "severity >= 17 OR UPPER(room) IN ('CELLAR', 'ATTIC')"},
        "to": "care.inbox",
    },
    "chosen": {
        "filter": {"all": [{"exact": {"senderdevice": "home-1"}}, {"exact": {"senderservice": "siren"}}]},
        "to": "help.inbox",
    },
    "letters": {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "help.inbox"},
}


def contract_of_everything() -> Any:
    """Routes by content, sender and expression, `sends`, a webhook, order, announced interest."""
    kinds = {"device": "device", "voice": "device_service", "siren": "device_service"}
    kinds |= dict.fromkeys(("help", "care"), "cloud_service")
    participants: dict[str, Any] = {name: {"kind": kind, "description": name} for name, kind in kinds.items()}
    participants["siren"]["sends"] = [DIARY]
    participants["help"]["inbox"] = {"webhook": {"timeout_s": 5, "give_up_after_s": 600}, "expiry_s": 60}
    participants["care"]["inbox"] = {"transport": "sqs_fifo", "ordering": "source"}
    document = {"format": 5, "name": "everything", "participants": participants, "routes": ROUTES}
    announced = [new_announcement("care", [{"exact": {"room": "kitchen"}}])]
    contract, refused = with_interest(compile_contract(document, "test"), announced)
    assert refused == {}
    return contract


def handover(archive: SmallArchive, outcome: Outcome = Outcome.DELIVERED, **more: Any) -> HandoverRecord:
    """The webhook's record of the last event of the ledger."""
    row = archive.ledger[-1]
    known = {
        "decided_at_ms": NOON_MS + 900,
        "entered_at_ms": NOON_MS + 100,
        "channel": "help.inbox",
        "contract_version": row.contract_version,
        "source": row.source,
        "id": row.id,
        "type": row.type,
        "outcome": outcome,
        "reason": None if outcome is Outcome.DELIVERED else "rejected",
        "status": 204,
        "attempt": 1,
        "message_id": "m",
        "sender": row.sender,
    }
    return HandoverRecord(**{**known, **more})


def plant_refusals(archive: SmallArchive) -> None:
    """Refusals that hold, and the same where they do not."""
    for hops in (MAX_HOPS, MAX_HOPS - 1):
        archive.refuse_event(archive.event(routerhops=hops), "hop_limit")
    archive.refuse_event(archive.event(senderdevice="home-2"), "reserved_attribute")
    archive.refuse_event(archive.event(), "reserved_attribute")
    archive.refuse_event(archive.event(data="x" * (MAX_SENT_EVENT_BYTES - 100)), "too_large")
    archive.refuse_event(archive.event(data="x"), "too_large")
    archive.refuse_event(archive.event(ALARM, senderservice="siren"), Reason.SENDER_NOT_ALLOWED)
    archive.refuse_event(archive.event(ALARM, senderservice="voice"), Reason.SENDER_NOT_ALLOWED)
    archive.refuse(b"garbage")
    archive.refuse(b"more garbage", "home-2")
    del archive.ledger[-2:]


def plant_ends(archive: SmallArchive) -> None:
    """Ends by expiry, guarantee and interest that hold, and the same where they do not."""

    def end(outcome: Outcome, reason: str | None = None, **attributes: Any) -> None:
        archive.send(READING, **{"room": "kitchen", **attributes})
        archive.ledger[-1] = replace(archive.ledger[-1], outcome=outcome, reason=reason)

    end(Outcome.EXPIRED, expirytime="2026-03-01T12:00:00.040Z")
    end(Outcome.EXPIRED, expirytime="2026-03-01T12:00:00.041Z")
    end(Outcome.EXPIRED, expirytime="2026-02-28t23:59:60z")
    end(Outcome.DROPPED, FAILED, deliveryguarantee="best_effort")
    end(Outcome.DROPPED, FAILED)
    end(Outcome.NO_INTEREST, Reason.NO_INTEREST, room="bath")
    end(Outcome.NO_INTEREST, Reason.NO_INTEREST)
    end(Outcome.NO_INTEREST, Reason.NO_INTEREST, room="bath", severitynumber=17)


def plant_contradictions(archive: SmallArchive) -> None:
    """Copies, records that contradict each other, and rows that nobody understands."""
    copied = archive.send(READING, room="kitchen")
    archive.accept(copied)
    reused = archive.event(id=copied.id, data="another", room="kitchen")
    archive.accept(reused)
    archive.route(reused)
    archive.accept(archive.event(ALARM, home="home-2", id=copied.id), "home-2")
    for members in ({"type": ALARM}, {"client_id": "home-9"}, {"outcome": "postponed"}):
        archive.send(READING, room="kitchen")
        archive.ledger[-1] = replace(archive.ledger[-1], **members)  # type: ignore[arg-type]
    archive.send(READING, room="kitchen")
    archive.ledger[-1] = replace(archive.ledger[-1], decided_at_ms=NOON_MS - HOUR_MS)
    archive.send(READING, room="kitchen")
    archive.bad_lines.append(("ledger", to_line(archive.ledger.pop())[:-30]))
    archive.send(READING, room="kitchen")
    line = to_line(archive.ledger.pop()).replace('"attempt":1', '"attempt":"1"')
    archive.bad_lines.append(("ledger", line))
    archive.send(READING, room="kitchen")
    archive.ledger[-1] = replace(archive.ledger[-1], basis=Basis.BUNDLED)
    archive.tap.append(replace(archive.tap[0], archived_at_ms=NOON_MS + 3 * HOUR_MS, message_id="late"))
    archive.accept(archive.event(READING, room="kitchen"))


def plant_handovers(archive: SmallArchive) -> None:
    """Handovers right, too often, refused, forged, absent, and without the ledger's record."""
    archive.send(ALARM, severity=21)
    archive.handovers.append(handover(archive))
    archive.send(ALARM, severity="3", room="attic")
    archive.handovers += [handover(archive), handover(archive)]
    archive.send(ALARM)
    archive.handovers.append(handover(archive, Outcome.DEAD_LETTERED))
    archive.send(ALARM)
    archive.handovers += [handover(archive, id="forged")]
    archive.send(ALARM)
    archive.handovers.append(handover(archive))
    archive.ledger.pop()
    archive.send(ALARM)
    archive.handovers.append(handover(archive, outcome="postponed"))


def seen(findings: Any) -> set[tuple[str | None, ...]]:
    names = "kind", "hop", "device", "source", "id", "type", "route", "destination", "detail"
    return {
        tuple(each[name] if isinstance(each, dict) else getattr(each, name) for name in names)
        for each in findings
    }


def test_what_spark_reads_is_judged_as_what_the_core_reads(archive: SmallArchive, audit: Audit) -> None:
    archive.contract = contract_of_everything()
    archive.contracts = [archive.contract]
    archive.begin_epoch("home-2", "e2")
    archive.send(DIARY, senderservice="siren")
    archive.send(DIARY, home="home-2", senderservice="siren")
    archive.send(DIARY, room="Cellar")
    archive.send(
        DEAD_LETTER_TYPE, source=router_source("home-1"), deadletterreason="not_utf8", partitionkey="p"
    )
    plant_refusals(archive)
    plant_ends(archive)
    plant_contradictions(archive)
    plant_handovers(archive)
    plain = archive.event(DIARY).json.replace('"deviceepoch":"e1",', "")
    archive.accept(replace(archive.event(DIARY), json=plain))
    report, expected = audit(), judged(archive)
    # What the devices and the order add is not of one event.
    others = {"reordered", "epoch_change", "missing_manifest", "missing_records"}
    found = [each for each in report["findings"] if each["kind"] not in others]
    found = [each for each in found if (each["kind"], each["hop"]) != ("clock_skew", "device_cloud")]
    assert seen(found) == seen(expected.findings)
    assert {each["route"]: each["expected"] for each in report["routes"]} == {
        name: expected.route(name)["expected"] for name in expected.routes
    }
    for row in report["routes"]:
        counted = expected.route(row["route"])
        assert {name: row[name] for name in counted} == counted
    assert {each["reason"]: each["rows"] for each in report["quarantine"]} == {
        reason: count for (_, reason), count in expected.rows().items() if reason
    }
    assert {
        (each["place"], each["reason"]): (each["count"], each["missing"]) for each in report["dead_letters"]
    } == expected.letters()
    assert {
        name: tuple(each.values()) for name, each in report["by_destination"].items()
    } == expected.inboxes()
    assert report["totals"]["to_replay"] == len(expected.judgement.replay)


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
    (text,) = kept.where("archive = 'tap' and reason = 'unreadable_line'").collect()
    assert text["text"] == '{"accepted_at_ms": 12'


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


def test_each_event_is_judged_by_the_contract_in_force(archive: SmallArchive, audit: Audit) -> None:
    old = archive.contract
    new = small_contract(diaries={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"})
    archive.contracts = [old, new]
    for minute in range(0, 60, 5):
        archive.contract = new if minute else old
        archive.send(DIARY, at_ms=NOON_MS + minute * 60_000)
    lost_after = archive.event(DIARY, at_ms=NOON_MS + 120_000)
    archive.accept(lost_after, at_ms=NOON_MS + 600_000)
    archive.contract = old
    stale = archive.send(DIARY, at_ms=NOON_MS + 40 * 60_000)
    report = audit()
    assert [use["version"] for use in report["contract_versions"]] == [old.version, new.version]
    assert (report["totals"]["unrouted"], report["totals"]["delivered"]) == (2, 11)
    assert {(each["kind"], each["id"], each["route"]) for each in report["findings"]} == {
        ("lost", lost_after.id, "diaries"),
        ("stale_contract", stale.id, "(unrouted)"),
    }


def test_the_canarys_alarms_are_expected_and_accuse_nobody(archive: SmallArchive, audit: Audit) -> None:
    archive.contract = load_contract()
    archive.contracts = [archive.contract]
    for id, home in (("1", CANARY_CLIENT), ("2", "home-1"), ("lost", CANARY_CLIENT)):
        alarm = {"id": id, "source": CANARY_SOURCE, "type": CANARY_ALARM}
        event = write_event(alarm, {"sent_at_ms": NOON_MS})
        archive.accept(event, home)
        if id != "lost":
            archive.route(event, home)
    (finding,) = audit()["findings"]
    # One in its name that a device sends has no route, and one that a router loses is lost as any event is.
    assert (finding["kind"], finding["device"], finding["route"]) == (
        "lost",
        CANARY_CLIENT,
        "canary-to-canary",
    )


def test_what_the_cloud_lost_is_sent_again_and_then_not_lost(
    archive: SmallArchive, audit: Audit, tmp_path: Path
) -> None:
    lost = archive.event(READING)
    archive.accept(lost)
    archive.send(READING)
    report = audit(DAY)
    assert (report["totals"]["lost"], report["verdict"]) == (1, "broken")
    (owed,) = replay_manifest(tmp_path)
    assert owed == {
        "sender": "home-1/",
        "source": lost.source,
        "id": lost.id,
        "type": READING,
        "device": "home-1",
        "route": "readings",
        "destination": "care.inbox",
        "contract_version": archive.contract.version,
        "entered_at_ms": NOON_MS,
        "archive_file": f"tap/date={DAY}/hour=12/rows.json.gz",
    }
    (sent,) = archive.route(lost)
    archive.ledger[-1] = replace(sent, reason="replay", decided_at_ms=NOON_MS + 30 * HOUR_MS)
    totals = audit(DAY, output="audit")["totals"]
    assert (totals["lost"], totals["replayed"], totals["to_replay"]) == (0, 1, 0)
    assert replay_manifest(tmp_path) == []


def test_what_was_overtaken_in_an_inbox_with_order_is_reordered(archive: SmallArchive, audit: Audit) -> None:
    document = json.loads(archive.contract.canonical)
    document["participants"]["care"]["inbox"] |= {"transport": "sqs_fifo", "ordering": "source"}
    archive.contract = compile_contract(document, "test")
    archive.contracts = [archive.contract]
    overtaken, _ = archive.send(READING), archive.send(READING)
    move(archive, overtaken, decided_at_ms=NOON_MS + 5_000)
    found = {(each["kind"], each["hop"], each["id"]) for each in audit()["findings"]}
    assert found == {("reordered", "router", overtaken.id)}


@pytest.mark.parametrize("gone", ["tap", "ledger"])
def test_with_an_empty_side_of_the_archive_the_other_is_what_is_told(
    archive: SmallArchive, audit: Audit, gone: str
) -> None:
    archive.send(ALARM)
    archive.send(READING)
    getattr(archive, gone).clear()
    report = audit()
    assert report["verdict"] in ("broken", "incomplete")
    assert report["totals"]["lost"] == report["totals"]["to_replay"] == 0
    assert report["totals"]["unrecorded"] == 2
    assert {(each["kind"], each["hop"], each["archive_file"]) for each in report["findings"]} == {
        ("missing_records", "archive", f"{gone}/date={DAY}/hour=12")
    }


def move(archive: SmallArchive, event: Envelope, *, decided_at_ms: int) -> None:
    """The router decided later on `event` than it did."""
    times = {"received_at_ms": decided_at_ms, "decided_at_ms": decided_at_ms}
    archive.ledger = [replace(row, **times) if row.id == event.id else row for row in archive.ledger]


def replay_manifest(output: Path) -> list[dict[str, object]]:
    files = sorted((output / "audit" / "replay").rglob("*.json.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
