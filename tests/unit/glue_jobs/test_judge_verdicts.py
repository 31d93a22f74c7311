"""Planted faults: the judgement finds each of them, names it, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.contract import compile_contract
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.limits import MAX_HOPS
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.findings import Finding
from tests.spark.small_archive import ALARM, DAY, DIARY, NOON_MS, READING, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import judged


def test_a_lost_event_is_found_with_its_evidence(archive: SmallArchive) -> None:
    archive.send()
    lost = archive.event(ALARM)
    archive.accept(lost)
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.route("alarms")["lost"] == report.route("alarms")["expected"] == 1
    assert report.findings == [
        Finding(
            date=DAY,
            kind="lost",
            hop="router",
            device="home-1",
            epoch="e1",
            sequence=2,
            source=lost.source,
            id=lost.id,
            type=ALARM,
            route="alarms",
            destination="help.inbox",
            contract_version=archive.contract.version,
            archive_file=f"tap/date={DAY}/hour=12/rows.json.gz",
            at_ms=NOON_MS,
            detail="no record",
        )
    ]


def test_one_of_two_routes_lost(archive: SmallArchive) -> None:
    archive.contract = small_contract(copies={"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"})
    archive.contracts = [archive.contract]
    archive.send(ALARM)
    archive.ledger = [row for row in archive.ledger if row.route != "copies"]
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.findings[0].route == "copies"


def test_a_route_by_cesql_expects_what_the_router_delivered(archive: SmallArchive) -> None:
    condition = "type LIKE '%.alarm.%' AND (severity >= 17 OR UPPER(room) IN ('KITCHEN', 'BATH'))"
    archive.contract = small_contract(severe={"filter": {"sql": condition}, "to": "care.inbox"})
    archive.contracts = [archive.contract]
    archive.send(ALARM, severity=21)
    archive.send(ALARM, severity="3", room="bath")
    archive.send(ALARM, room="bath")  # an error, as nothing says how severe it is
    archive.send(READING, severity=21)
    report = judged(archive)
    assert report.faults() == {}
    assert report.route("severe")["delivered"] == 2
    archive.ledger = [row for row in archive.ledger if row.route != "severe"]
    assert judged(archive).faults() == {"lost": 2}


@pytest.mark.source("P-W9")
def test_a_copy_in_the_inbox_is_a_duplicate(archive: SmallArchive) -> None:
    event = archive.send()
    archive.route(event)
    archive.route(event)
    report = judged(archive)
    assert report.faults() == {"duplicated": 2}
    assert report.totals["delivered"] == 1
    assert report.inboxes() == {"care.inbox": (1, 3, 0)}


@pytest.mark.source("P4")
def test_a_row_of_the_ledger_in_two_objects_counts_once_and_a_delivery_that_was_made_before_not_again(
    archive: SmallArchive,
) -> None:
    archive.send()
    alarm = archive.event(ALARM)
    archive.accept(alarm)
    early = archive.route(alarm)
    archive.ledger = [replace(row, basis=Basis.BUNDLED) if row in early else row for row in archive.ledger]
    archive.ledger += [
        replace(row, decided_at_ms=row.decided_at_ms + 1, attempt=2, reason=SENT_BEFORE) for row in early
    ]
    report = judged(archive, twice=True)
    assert report.faults() == {}
    assert report.inboxes() == {"care.inbox": (1, 1, 0), "help.inbox": (1, 1, 0)}


@pytest.mark.source("C4")
def test_what_may_have_expired_in_an_inbox_without_receipts_is_counted(archive: SmallArchive) -> None:
    archive.send(expirytime="2026-03-01T12:10:00Z")
    copied = archive.send(expirytime="2026-03-01T12:10:00Z")
    archive.route(copied)
    archive.send()
    report = judged(archive)
    assert report.faults() == {"duplicated": 1}
    assert report.inboxes() == {"care.inbox": (3, 4, 2)}


def test_a_copy_in_the_tap_expects_nothing_more(archive: SmallArchive) -> None:
    event = archive.send()
    archive.accept(event)
    report = judged(archive)
    assert report.faults() == {}
    assert report.totals["events"] == report.totals["expected"] == 1
    assert report.totals["tap_copies"] == 1


def test_a_delivery_that_no_route_gives_is_misrouted(archive: SmallArchive) -> None:
    event = archive.send()
    wrong = archive.record(event, route="alarms", destination="help.inbox", outcome=Outcome.DELIVERED)
    archive.ledger.append(wrong)
    report = judged(archive)
    assert report.faults() == {"misrouted": 1}
    assert report.totals["delivered"] == report.totals["expected"] == 1
    (finding,) = report.findings
    assert (finding.kind, finding.route, finding.destination) == (
        "misrouted",
        "alarms",
        "help.inbox",
    )
    assert finding.archive_file == f"ledger/date={DAY}/hour=12/rows.json.gz"


def test_a_route_s_delivery_to_another_inbox_is_misrouted_and_still_owed(archive: SmallArchive) -> None:
    archive.send()
    archive.ledger[-1] = replace(archive.ledger[-1], destination="help.inbox")
    report = judged(archive)
    assert report.faults() == {"lost": 1, "misrouted": 1}
    assert {each.kind: (each.route, each.destination) for each in report.findings} == {
        "lost": ("readings", "care.inbox"),
        "misrouted": ("readings -> help.inbox", "help.inbox"),
    }


def test_a_delivery_that_the_tap_knows_nothing_of_is_unexplained(archive: SmallArchive) -> None:
    archive.send()
    archive.route(archive.event())
    report = judged(archive)
    assert report.faults() == {"unexplained": 1}
    # Whether it is forged is for the devices to say.
    assert report.findings == []
    (row,) = report.judgement.not_in_tap
    assert (row.client_id, row.id, row.route, row.destination) == (
        "home-1",
        "home-1-e1-2",
        "readings",
        "care.inbox",
    )


def test_an_event_without_a_route_is_unrouted(archive: SmallArchive) -> None:
    archive.send(DIARY)
    report = judged(archive)
    assert report.faults() == {}
    assert report.totals["unrouted"] == 1
    assert report.totals["expected"] == 0


def test_an_event_without_a_route_and_without_a_record_is_lost(archive: SmallArchive) -> None:
    archive.accept(archive.event(DIARY))
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.findings[0].route == "(unrouted)"


def test_calling_a_routed_event_unrouted_is_a_loss_and_a_wrong_decision(archive: SmallArchive) -> None:
    event = archive.event()
    archive.accept(event)
    archive.ledger.append(archive.record(event))
    assert judged(archive).faults() == {"lost": 1, "misrouted": 1}


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.DROPPED])
@pytest.mark.parametrize("route", ["readings", None])
def test_an_end_by_policy_is_not_a_loss(archive: SmallArchive, outcome: Outcome, route: str | None) -> None:
    event = archive.event(expirytime="2026-03-01T12:00:00.040Z")  # when the router decides
    archive.accept(event)
    archive.ledger.append(archive.record(event, route=route, outcome=outcome, reason="because"))
    report = judged(archive)
    assert report.faults() == {str(outcome): 1}
    assert report.route("readings")[str(outcome)] == report.route("readings")["expected"] == 1


def with_check(archive: SmallArchive, schema_check: str) -> SmallArchive:
    archive.contract = small_contract(schema_check)
    archive.contracts = [archive.contract]
    return archive


@pytest.mark.parametrize(
    ("schema_check", "reason"),
    [("known", "payload_invalid"), ("strict", "payload_invalid"), ("strict", "unknown_dataschema")],
)
def test_an_event_that_was_refused_by_its_payload_is_dead_lettered(
    archive: SmallArchive, schema_check: str, reason: str
) -> None:
    with_check(archive, schema_check).refuse_event(archive.event(), reason)
    archive.send(ALARM)
    report = judged(archive)
    assert report.faults() == {"dead_lettered": 1}
    assert report.route("readings")["dead_lettered"] == report.route("readings")["expected"] == 1
    assert report.letters() == {("cloud", reason): (1, 0)}
    assert report.totals["internal"] == 1


@pytest.mark.parametrize(
    ("schema_check", "reason"),
    [
        ("none", "payload_invalid"),
        ("known", "unknown_dataschema"),
        ("strict", "because"),
        ("strict", None),
    ],
)
def test_a_router_is_not_believed_that_the_contract_let_it_refuse_an_event(
    archive: SmallArchive, schema_check: str, reason: str
) -> None:
    with_check(archive, schema_check).refuse_event(archive.event(), reason)
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 1}
    assert report.findings[0].route == "readings"
    assert report.findings[0].archive_file.startswith("ledger/")


def test_a_refused_type_that_the_contract_does_not_check_is_lost(archive: SmallArchive) -> None:
    with_check(archive, "strict").refuse_event(archive.event(ALARM), "payload_invalid")
    assert judged(archive).faults() == {"lost": 1, "dead_lettered": 1}


@pytest.mark.parametrize("route", ["readings", None])
def test_a_dead_lettered_event_whose_letter_reached_nobody_is_lost(
    archive: SmallArchive, route: str | None
) -> None:
    with_check(archive, "strict").refuse_event(archive.event(), "payload_invalid", route=route)
    archive.refuse_event(archive.event(), "payload_invalid", route=route)
    archive.ledger[-1] = replace(archive.ledger[-1], outcome=Outcome.EXPIRED)
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 2}
    assert report.findings[0].id == archive.ledger[-2].id


def test_one_route_that_ended_in_a_dead_letter_says_nothing_of_the_others(archive: SmallArchive) -> None:
    archive.contract = small_contract(copies={"filter": {"exact": {"type": READING}}, "to": "help.inbox"})
    archive.contracts = [archive.contract]
    archive.refuse_event(archive.event(), "no_room", route="copies", destination="help.inbox")
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 1}
    assert report.findings[0].route == "readings"


def test_a_copy_that_was_delivered_goes_before_one_that_was_refused(archive: SmallArchive) -> None:
    event = archive.event()
    with_check(archive, "strict").refuse_event(event, "payload_invalid")
    archive.route(event)
    report = judged(archive)
    assert (report.totals["delivered"], report.totals["lost"]) == (1, 0)


@pytest.mark.parametrize("expiry", [{}, {"expirytime": "2026-03-01T12:00:00.041Z"}])
def test_a_router_is_not_believed_that_an_event_had_expired(
    archive: SmallArchive, expiry: dict[str, str]
) -> None:
    event = archive.event(**expiry)
    archive.accept(event)
    archive.ledger.append(archive.record(event, route="readings", outcome=Outcome.EXPIRED))
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.findings[0].route == "readings"


def test_an_expiry_that_cannot_be_read_is_the_router_s_to_judge(archive: SmallArchive) -> None:
    event = archive.event(expirytime="2026-02-28T23:59:60Z")
    archive.accept(event)
    archive.ledger.append(archive.record(event, route="readings", outcome=Outcome.EXPIRED))
    assert judged(archive).faults() == {"expired": 1}


def with_expiry(archive: SmallArchive, expiry_s: int) -> SmallArchive:
    document = json.loads(small_contract().canonical)
    document["participants"]["care"]["inbox"]["expiry_s"] = expiry_s
    archive.contract = compile_contract(document, "test")
    archive.contracts = [archive.contract]
    return archive


@pytest.mark.parametrize(
    ("expiry_s", "age_ms", "reason", "verdict"),
    [
        (10, 10_000, "channel_expiry", "expired"),
        (10, 9_999, "channel_expiry", "lost"),
        (10, 10_000, None, "lost"),
        (None, 10_000, "channel_expiry", "lost"),
    ],
)
def test_an_event_expires_by_its_channel_when_it_is_old_enough(
    archive: SmallArchive, expiry_s: int | None, age_ms: int, reason: str | None, verdict: str
) -> None:
    if expiry_s:
        with_expiry(archive, expiry_s)
    event = archive.event()
    archive.accept(event)
    more: dict[str, Any] = {"decided_at_ms": NOON_MS + age_ms, "reason": reason, "destination": "care.inbox"}
    archive.ledger.append(archive.record(event, route="readings", outcome=Outcome.EXPIRED, **more))
    assert judged(archive).faults() == {verdict: 1}


@pytest.mark.parametrize(("hops", "verdict"), [(MAX_HOPS, "dead_lettered"), (MAX_HOPS - 1, "lost")])
def test_a_loop_is_believed_when_the_event_came_round_so_often(
    archive: SmallArchive, hops: int, verdict: str
) -> None:
    archive.refuse_event(archive.event(routerhops=hops), "hop_limit")
    assert judged(archive).faults()[verdict] == 1


@pytest.mark.parametrize(("hops", "verdict"), [(MAX_HOPS, "dropped"), (MAX_HOPS - 1, "lost")])
def test_a_letter_that_goes_round_is_dropped(archive: SmallArchive, hops: int, verdict: str) -> None:
    event = archive.event(routerhops=hops)
    archive.accept(event)
    archive.ledger.append(archive.record(event, outcome=Outcome.DROPPED, reason="hop_limit"))
    assert judged(archive).faults() == {verdict: 1}


def test_what_enters_in_the_cloud_is_internal(archive: SmallArchive) -> None:
    rows = archive.route(archive.event())
    archive.ledger = [replace(row, entered_by="help.outbox", client_id=None) for row in rows]
    report = judged(archive)
    assert report.faults() == {}
    assert report.totals["internal"] == 1
    assert report.totals["expected"] == 0


def test_each_event_is_judged_by_the_contract_in_force(archive: SmallArchive) -> None:
    old, new = (
        archive.contract,
        small_contract(diaries={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"}),
    )
    archive.contracts = [old, new]
    archive.send(DIARY)  # unrouted, rightly
    lost_before = archive.event(DIARY, at_ms=NOON_MS + 1)
    archive.accept(lost_before, at_ms=NOON_MS + 1)
    archive.contract = new
    archive.send(DIARY, at_ms=NOON_MS + 60_000)  # delivered, rightly
    lost_after = archive.event(DIARY, at_ms=NOON_MS + 120_000)
    archive.accept(lost_after, at_ms=NOON_MS + 120_000)
    # A router of the old version was still running: its word goes before the clock.
    archive.contract = old
    archive.send(DIARY, at_ms=NOON_MS + 180_000)
    report = judged(archive)
    assert report.faults() == {"lost": 2}
    assert {each.id: each.route for each in report.findings} == {
        lost_before.id: "(unrouted)",
        lost_after.id: "diaries",
    }
    assert (report.totals["unrouted"], report.totals["delivered"]) == (2, 1)


def test_copies_routed_by_two_versions_expect_the_routes_of_both(archive: SmallArchive) -> None:
    old, new = (
        archive.contract,
        small_contract(diaries={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"}),
    )
    archive.contracts = [old, new]
    event = archive.send(DIARY)
    archive.contract = new
    archive.accept(event, at_ms=NOON_MS + 60_000)
    archive.route(event, at_ms=NOON_MS + 60_000)
    report = judged(archive)
    assert report.faults() == {}
    assert (report.totals["unrouted"], report.totals["delivered"]) == (1, 1)


def test_with_an_empty_ledger_everything_is_lost(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.send(READING)
    archive.ledger = []
    report = judged(archive)
    assert report.faults() == {"lost": 2}
    assert not report.judgement.latencies


def test_with_an_empty_tap_everything_is_unexplained(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.send(READING)
    archive.tap = []
    report = judged(archive)
    assert report.faults() == {"unexplained": 2}
    assert report.inboxes()["help.inbox"] == (1, 1, 0)
